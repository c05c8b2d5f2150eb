//! What to paste into a MikroTik router: for its version and processor.

use parallax_decide::names::VantageName;

use crate::error::{Exit, Failure};

/// Oldest version with containers that is written for.
const OLDEST: (u32, u32) = (7, 10);

/// From this version on a container takes its variables and mounts inline, and needs `cmd`.
const INLINE_SINCE: (u32, u32) = (7, 22);

/// A router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Router {
    version: (u32, u32),
    arch: Arch,
}

/// Processors with containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arch {
    Arm64,
    Arm,
    Armv5,
    X86,
}

impl Arch {
    /// As the image's file is named.
    fn word(self) -> &'static str {
        match self {
            Self::Arm64 => "arm64",
            Self::Arm => "armv7",
            Self::Armv5 => "armv5",
            Self::X86 => "amd64",
        }
    }
}

impl Router {
    /// Reads `--version` and `--arch`.
    ///
    /// # Errors
    /// When one is missing or not understood, or when the router cannot run an agent.
    pub(super) fn of(version: Option<&str>, arch: Option<&str>) -> Result<Self, Failure> {
        let usage = |what: &str| {
            Failure::new(Exit::Usage, what).fix(
                "give --version and --arch as `/system/resource/print` shows them, as in --version 7.24 --arch arm64",
            )
        };
        let version = version.ok_or_else(|| usage("--for routeros needs --version"))?;
        let arch = arch.ok_or_else(|| usage("--for routeros needs --arch"))?;
        let mut parts = version.split('.');
        let mut number = || parts.next().map(|part| part.chars().take_while(char::is_ascii_digit).collect::<String>());
        let (major, minor) = (number(), number());
        let read = |part: Option<String>| part.and_then(|part| part.parse::<u32>().ok());
        let version = match (read(major), read(minor)) {
            (Some(major), Some(minor)) => (major, minor),
            (Some(_) | None, Some(_) | None) => return Err(usage(&format!("`{version}` is no version of RouterOS"))),
        };
        let no_container = |why: &str| {
            Failure::new(Exit::Refused, "this router cannot run an agent").why(why).fix(
                "run the agent on any Linux machine of that network: it then asks the router as its resolver, as clients do",
            )
        };
        if version < OLDEST {
            return Err(no_container("RouterOS before 7.10 has no usable containers"));
        }
        let arch = match arch.to_ascii_lowercase().as_str() {
            "arm64" | "aarch64" => Arch::Arm64,
            "arm" | "armv7" => Arch::Arm,
            "armv5" => Arch::Armv5,
            "x86" | "x86_64" | "amd64" => Arch::X86,
            "mipsbe" | "mmips" | "smips" | "mips" | "ppc" | "tile" => {
                return Err(no_container("boards with this processor have no containers"));
            }
            _ => return Err(usage(&format!("`{arch}` is no processor with containers"))),
        };
        Ok(Self { version, arch })
    }

    /// The lines to paste.
    pub(super) fn paste(self, name: &VantageName, token: &str) -> String {
        let arch = self.arch.word();
        let mut out = String::from(
            "# Once, at the router itself (a press of its button or a power cycle within 5 min confirms it):\n\
             /system/device-mode/update container=yes\n\
             # The image: build the static agent for the router's processor (deploy/README.md), make an image of that one file\n\
             # (FROM scratch, COPY parallax-agent /, ENTRYPOINT [\"/parallax-agent\"]) and `docker save` it, not compressed.\n\
             # Then upload it as disk1/parallax-agent-",
        );
        out.push_str(arch);
        out.push_str(
            ".tar and paste the rest:\n\
             /interface/veth/add name=veth-parallax address=172.31.255.2/30 gateway=172.31.255.1\n\
             /ip/address/add address=172.31.255.1/30 interface=veth-parallax\n\
             /ip/firewall/nat/add chain=srcnat action=masquerade src-address=172.31.255.0/30\n",
        );
        let image = format!("file=disk1/parallax-agent-{arch}.tar interface=veth-parallax");
        let rest = "root-dir=disk1/ct/parallax dns=172.31.255.1 start-on-boot=yes logging=yes";
        if self.version >= INLINE_SINCE {
            out.push_str(&format!(
                "/container/add name=parallax {image} \\\n  env=\"PARALLAX_TOKEN={token}\" \\\n  \
                 mount=\"src=disk1/parallax,dst=/var/lib/parallax-agent\" \\\n  cmd=run {rest} memory-high=32M\n\
                 /container/start [find name=parallax]\n"
            ));
        } else {
            out.push_str(&format!(
                "/container/envs/add name=parallax key=PARALLAX_TOKEN value=\"{token}\"\n\
                 /container/mounts/add name=parallax src=disk1/parallax dst=/var/lib/parallax-agent\n\
                 /container/add {image} \\\n  envlist=parallax mounts=parallax cmd=run {rest}\n\
                 /container/start [find interface=veth-parallax]\n\
                 # Options of containers were renamed in 7.20 and 7.21: where one is refused, the Tab key shows its new name.\n"
            ));
        }
        if self.arch == Arch::Arm {
            out.push_str(
                "# hEX Refresh and hEX S (2025) say arm and need armv5: repeat with --arch armv5 for those.\n",
            );
        }
        out.push_str(&format!(
            "# No disk? Put the image on a tmpfs disk and root-dir on flash. The router must answer DNS for 172.31.255.2.\n\
             # Expect in /log: joined as {name}. The token works once; it may stay in the settings.\n"
        ));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paste(version: &str, arch: &str) -> String {
        Router::of(Some(version), Some(arch)).unwrap().paste(&"branch-kazan".parse().unwrap(), "vt1.abc")
    }

    #[test]
    fn the_options_are_those_of_the_version() {
        let new = paste("7.24", "arm64");
        assert!(new.contains("env=\"PARALLAX_TOKEN=vt1.abc\"") && new.contains("parallax-agent-arm64.tar"), "{new}");
        let old = paste("7.18.2 (stable)", "x86");
        assert!(old.contains("envlist=parallax") && !old.contains(" env=") && old.contains("amd64.tar"), "{old}");
        assert!(paste("7.22beta1", "arm").contains("--arch armv5"));
    }

    #[test]
    fn a_router_without_containers_is_told_what_else_to_do() {
        for (version, arch) in [("7.24", "mipsbe"), ("7.24", "mmips"), ("7.6", "arm64"), ("6.49", "arm")] {
            let refused = Router::of(Some(version), Some(arch)).unwrap_err();
            assert_eq!(refused.exit, Exit::Refused, "{version} {arch}");
            assert!(refused.to_string().contains("any Linux machine"), "{refused}");
        }
        for (version, arch) in
            [(None, Some("arm64")), (Some("7.24"), None), (Some("new"), Some("arm64")), (Some("7.24"), Some("z80"))]
        {
            assert_eq!(Router::of(version, arch).unwrap_err().exit, Exit::Usage);
        }
    }
}
