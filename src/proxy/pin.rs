//! Requests whose client has chosen the engine.

use std::borrow::Cow;
use std::sync::Arc;

use percent_encoding::percent_decode_str;
use pingora_http::RequestHeader;

use super::headers::ENGINE_FIELD;
use crate::api_error::ApiError;
use crate::engines::Pool;

/// The parameter of the query that names an engine, as in the production-stack router.
const PARAMETER: &str = "id";

/// The pool of a request, which a query may name only where `by_query` says so: `pool`, or the one engine of it that the client has chosen, and whether
/// it has.
pub(super) fn pin(
    request: &RequestHeader,
    by_query: bool,
    may_pin: bool,
    pool: Arc<Pool>,
) -> Result<(Arc<Pool>, bool), ApiError> {
    let Some(name) = chosen(request, by_query)? else {
        return Ok((pool, false));
    };
    if !may_pin {
        return Err(ApiError::pin_not_allowed());
    }
    let engine = pool.engines().find(|engine| engine.name() == name);
    let pinned = engine.and_then(|engine| pool.pinned(engine.id()));
    match pinned {
        Some(pinned) => Ok((Arc::new(pinned), true)),
        None => Err(ApiError::engine_not_found(&name, pool.model())),
    }
}

/// The engine a request names.
fn chosen(request: &RequestHeader, by_query: bool) -> Result<Option<Cow<'_, str>>, ApiError> {
    let mut fields = request.headers.get_all(&ENGINE_FIELD).iter();
    let field = match (fields.next(), fields.next()) {
        (None, _) => None,
        (Some(value), None) => Some(String::from_utf8_lossy(value.as_bytes())),
        (Some(_), Some(_)) => return Err(chosen_twice()),
    };
    let mut parameters = pairs(request.uri.query())
        .filter(|(key, _)| by_query && *key == PARAMETER)
        .map(|(_, value)| percent_decode_str(value).decode_utf8_lossy());
    match (field, parameters.next(), parameters.next()) {
        (_, Some(_), Some(_)) => Err(chosen_twice()),
        (Some(field), Some(parameter), None) if field != parameter => Err(chosen_twice()),
        (Some(name), _, None) | (None, Some(name), None) => Ok(Some(name)),
        (None | Some(_), None, _) => Ok(None),
    }
}

fn chosen_twice() -> ApiError {
    let what = "the engine may be chosen once: by ?id=ENGINE or by x-vllm-pingora-engine";
    ApiError::invalid_request(what)
}

/// The path and query of a request without what chose its engine; `None` where that changes
/// nothing.
pub(super) fn target_without_pin(request: &RequestHeader) -> Option<String> {
    let query = request.uri.query()?;
    let kept: Vec<_> = query
        .split('&')
        .filter(|pair| pair.split('=').next() != Some(PARAMETER))
        .collect();
    let kept = kept.join("&");
    if kept.len() == query.len() {
        return None;
    }
    let path = request.uri.path();
    Some(if kept.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{kept}")
    })
}

/// The parameters of a query that have a value.
pub(super) fn pairs(query: Option<&str>) -> impl Iterator<Item = (&str, &str)> {
    let parts = query.unwrap_or_default().split('&');
    parts.filter_map(|pair| pair.split_once('='))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::headers::ENGINE;

    fn request(target: &str, engines: &[&'static str]) -> RequestHeader {
        let mut request = RequestHeader::build("POST", target.as_bytes(), None).unwrap();
        for engine in engines {
            request.append_header(ENGINE, *engine).unwrap();
        }
        request
    }

    #[test]
    fn the_header_or_the_query_names_the_engine() {
        let name = |target, engines| {
            let request = request(target, engines);
            chosen(&request, true).map(|name| name.map(Cow::into_owned))
        };
        let a = Some("a".to_owned());
        assert_eq!(name("/v1/completions", &[]), Ok(None));
        assert_eq!(name("/v1/completions?id=a", &[]), Ok(a.clone()));
        assert_eq!(name("/v1/completions?x=1&id=%61", &[]), Ok(a.clone()));
        assert_eq!(name("/v1/completions", &["a"]), Ok(a.clone()));
        assert_eq!(name("/v1/completions?id=a", &["a"]), Ok(a));
        assert_eq!(chosen(&request("/files?id=a&id=b", &[]), false), Ok(None));
        for (target, engines) in [
            ("/?id=a&id=a", &[][..]),
            ("/?id=a", &["b"]),
            ("/", &["a", "a"]),
        ] {
            assert!(name(target, engines).is_err(), "{target}");
        }
    }

    #[test]
    fn what_chose_the_engine_is_not_for_the_engine() {
        let target = |target| target_without_pin(&request(target, &[]));
        assert_eq!(target("/p"), None);
        assert_eq!(target("/p?level=1"), None);
        assert_eq!(target("/p?id=a").as_deref(), Some("/p"));
        assert_eq!(target("/p?x=%20&id=a&y").as_deref(), Some("/p?x=%20&y"));
    }
}
