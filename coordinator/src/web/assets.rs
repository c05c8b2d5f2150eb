//! The embedded files: the page must work when everything outside is dead.

use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

use super::desk::Desk;
use super::trouble;

struct Asset {
    name: &'static str,
    kind: &'static str,
    body: &'static str,
}

const ASSETS: [Asset; 3] = [
    Asset { name: "parallax.css", kind: "text/css; charset=utf-8", body: include_str!("../../assets/parallax.css") },
    Asset { name: "live.js", kind: "text/javascript; charset=utf-8", body: include_str!("../../assets/live.js") },
    Asset { name: "icon.svg", kind: "image/svg+xml", body: include_str!("../../assets/icon.svg") },
];

/// One file. The version is its tag: it changes only with the program.
pub async fn file(State(desk): State<Desk>, Path(name): Path<String>, uri: Uri, headers: HeaderMap) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.name == name) else {
        return trouble::nothing_here(State(desk), uri).await;
    };
    let tag = format!("\"{}-{}\"", env!("CARGO_PKG_VERSION"), asset.body.len());
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok()) == Some(tag.as_str());
    let mut response = if known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(header::CONTENT_TYPE, asset.kind)], asset.body).into_response()
    };
    let headers = response.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `<script src>` to a dead host blocks a page until the connect times out, and the canaries of
    /// our own story are such hosts.
    #[test]
    fn no_asset_and_no_template_names_an_outside_host() {
        let templates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
        let mut texts: Vec<String> = ASSETS.iter().map(|asset| asset.body.to_owned()).collect();
        for entry in std::fs::read_dir(templates).unwrap() {
            texts.push(std::fs::read_to_string(entry.unwrap().path()).unwrap());
        }
        for text in texts {
            let text = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains("://"), "{text}");
            assert!(!text.contains("style="), "inline styles are refused by our own policy: {text}");
        }
    }

    #[test]
    fn the_script_stays_small() {
        assert!(ASSETS.iter().any(|asset| asset.name == "live.js" && asset.body.len() < 4096));
    }
}
