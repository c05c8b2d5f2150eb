//! Generates the Rust code of `probe/v1/*.proto` without an installed protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=probe");
    let files = protox::Compiler::new(["."])?
        .include_imports(true)
        .include_source_info(true)
        .open_files(["probe/v1/session.proto"])?
        .file_descriptor_set();
    tonic_prost_build::configure()
        .build_client(std::env::var_os("CARGO_FEATURE_CLIENT").is_some())
        .build_server(std::env::var_os("CARGO_FEATURE_SERVER").is_some())
        .codec_path("crate::codec::QuietCodec")
        .compile_fds(files)?;
    Ok(())
}
