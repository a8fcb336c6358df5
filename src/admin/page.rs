//! The files of the status page.

/// One file.
#[derive(Debug)]
struct File {
    path: &'static str,
    kind: &'static str,
    content: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

macro_rules! files {
    ($($path:literal $kind:ident $file:literal,)*) => {
        &[$(File { path: $path, kind: $kind, content: include_str!(concat!("page/", $file)) },)*]
    };
}

/// All of them. The page names the others relative to its own place.
const FILES: &[File] = files! {
    "/" HTML "index.html",
    "/page/icon.svg" PICTURE "icon.svg",
    "/page/style.css" STYLE "style.css",
    "/page/theme.js" SCRIPT "theme.js",
    "/page/main.js" SCRIPT "main.js",
    "/page/feed.js" SCRIPT "feed.js",
    "/page/state.js" SCRIPT "state.js",
    "/page/format.js" SCRIPT "format.js",
    "/page/dom.js" SCRIPT "dom.js",
    "/page/verdict.js" SCRIPT "verdict.js",
    "/page/charts.js" SCRIPT "charts.js",
    "/page/series.js" SCRIPT "series.js",
    "/page/engines.js" SCRIPT "engines.js",
    "/page/requests.js" SCRIPT "requests.js",
};

/// The content type and the content of the file at `path`.
pub(super) fn file(path: &str) -> Option<(&'static str, &'static str)> {
    let file = FILES.iter().find(|file| file.path == path)?;
    Some((file.kind, file.content))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names<'a>(content: &'a str, before: &'a str) -> impl Iterator<Item = &'a str> {
        let parts = content.split(before).skip(1);
        parts.map(|rest| rest.split('"').next().unwrap())
    }

    #[test]
    fn whatever_a_file_names_is_there() {
        let mut named = 0;
        for page in FILES {
            let folder = page.path.rsplit_once('/').unwrap().0;
            for before in ["src=\"", "href=\"", "from \"./"] {
                for name in names(page.content, before).filter(|name| !name.starts_with('#')) {
                    let path = format!("{folder}/{name}");
                    assert!(
                        super::super::pages::is_one(&path),
                        "{} names {path}",
                        page.path
                    );
                    named += 1;
                }
            }
        }
        assert!(
            named >= FILES.len() - 1,
            "{named} names for {} files",
            FILES.len()
        );
    }

    #[test]
    fn nothing_comes_from_elsewhere_and_no_text_becomes_markup() {
        for page in FILES {
            let text = page.content.replace("http://www.w3.org/2000/svg", "");
            for hostile in [
                "http://",
                "https://",
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                " style=\"",
                " onclick=",
                " onload=",
                "<style",
            ] {
                assert!(!text.contains(hostile), "{}: {hostile}", page.path);
            }
        }
    }
}
