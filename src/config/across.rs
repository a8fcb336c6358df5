//! Checks across settings: two that clash, one that has no effect, a variable that nobody reads.

use super::keys::{
    ADMIN_PORT, DEFAULT_MODEL, ENV_PREFIX, KEYS, MAX_BUFFERED_BODY_BYTES, MAX_REQUEST_BODY_BYTES,
    PORT, SESSION_KEY, Source,
};
use super::reader::Reader;
use super::report::Place;
use super::settings::Settings;
use super::suggest;
use crate::discovery::Discovery;
use crate::routing::Kind;

/// Two listeners cannot share a port.
pub(super) fn check_listeners(reader: &mut Reader<'_>, settings: &Settings) {
    let is_any = |host: &str| host == "0.0.0.0" || host == "::";
    let (public, admin) = (&settings.host, &settings.admin_host);
    let overlap = public == admin || is_any(public) || is_any(admin);
    if settings.port != 0 && settings.port == settings.admin_port && overlap {
        let (public, admin) = (reader.given(&PORT).place, reader.given(&ADMIN_PORT).place);
        let place = if admin.is_given() { admin } else { public };
        let what = format!(
            "{} would be both the public and the admin port; give two",
            settings.port
        );
        reader.mistake(&place, what);
    }
}

/// A body that is accepted must find room where no other is.
pub(super) fn check_bodies(reader: &mut Reader<'_>, settings: &Settings) {
    let largest = settings.max_request_body_bytes;
    if settings
        .max_buffered_body_bytes
        .is_some_and(|all| all.get() < largest)
    {
        let place = reader.given(&MAX_BUFFERED_BODY_BYTES).place;
        let what = format!(
            "less than {} ({largest}): a body of that size would never be taken",
            MAX_REQUEST_BODY_BYTES.name
        );
        reader.mistake(&place, what);
    }
}

/// A session key is for those that look at it.
pub(super) fn check_session(reader: &mut Reader<'_>, settings: &Settings) {
    let logic = settings.routing.kind;
    if settings.session_key.is_some() && logic != Kind::Session {
        let what = format!(
            "{} has no effect: routing_logic {} does not look at it",
            SESSION_KEY.name,
            logic.word()
        );
        reader.report.warnings.push(what);
    }
}

/// The default model must be one that somebody serves.
pub(super) fn check_default_model(reader: &mut Reader<'_>, settings: &Settings) {
    let Some(model) = &settings.default_model else {
        return;
    };
    let engines = &settings.engines;
    let served = settings.aliases.contains_key(model)
        || engines.iter().any(|engine| engine.models.contains(model));
    // An engine without declared models may turn out to serve it, or one that is yet to be found.
    let all_known = settings.discovery == Discovery::Static;
    if !served && all_known && engines.iter().all(|engine| !engine.models.is_empty()) {
        let place = reader.given(&DEFAULT_MODEL).place;
        reader.mistake(
            &place,
            format!("{model} is served by no engine and is no alias"),
        );
    }
}

/// Variables that look like ours and are not.
pub(super) fn check_environment(reader: &mut Reader<'_>) {
    if reader.is_service_link(&PORT) {
        let what = format!(
            "{} is ignored: it holds an address, as Kubernetes sets it for a Service called vllm-pingora",
            PORT.env()
        );
        reader.report.warnings.push(what);
    }
    for variable in reader
        .env_names()
        .filter(|name| name.starts_with(ENV_PREFIX))
    {
        let name = variable.trim_start_matches(ENV_PREFIX).to_ascii_lowercase();
        if let Some(key) = KEYS.iter().find(|key| key.name == name) {
            if !key.is_typed() {
                let what = format!("not read from the environment{}", short_form(key.name));
                reader.mistake(&Place::Env(variable.to_owned()), what);
            }
            continue;
        }
        let known = KEYS.iter().filter(|key| key.is_typed()).map(|key| key.name);
        if let Some(close) = suggest::closest(&name, known) {
            let close = close.to_ascii_uppercase();
            let what = format!("{variable} is not read; did you mean {ENV_PREFIX}{close}");
            reader.report.warnings.push(what);
        }
    }
}

/// How to give a key of the file in the environment after all.
fn short_form(name: &'static str) -> String {
    let short = KEYS.iter().find(|key| key.from == Source::Typed(name));
    short.map_or_else(
        || "; it is a key of the file".into(),
        |key| format!("; give {}", key.env()),
    )
}
