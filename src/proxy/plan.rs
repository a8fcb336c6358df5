//! What requests are handled by, as far as the settings say; another one may come at any time.

use std::time::Duration;

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue, InvalidHeaderValue};

use super::authorize::holds_one_of;
use super::headers::Credential;
use super::hold::Hold;
use crate::config::{Secret, Settings};
use crate::request::json::Wanted;
use crate::request::route::{Route, Routes};
use crate::retry::RetryConfig;
use crate::routing::Kind;

/// What requests are handled by. A request keeps the one it began with.
#[derive(Debug)]
pub struct Plan {
    pub(super) routes: Routes,
    pub(super) retry: Option<RetryConfig>,
    pub(super) api_keys: Vec<Secret>,
    pub(super) allow_pins: bool,
    pub(super) pin_api_keys: Vec<Secret>,
    pub(super) default_model: Option<String>,
    pub(super) wanted: Wanted,
    pub(super) session_header: Option<HeaderName>,
    engine_credential: Option<HeaderValue>,
    pub(super) max_body: usize,
    pub(super) connect_timeout: Duration,
    pub(super) engine_keepalive: Duration,
    pub(super) hold: Option<Hold>,
}

impl Plan {
    /// The plan of these settings.
    ///
    /// # Errors
    /// The engine key cannot be sent in a header.
    pub fn new(settings: &Settings) -> Result<Self, InvalidHeaderValue> {
        let engine_credential = match &settings.engine_api_key {
            Some(key) => {
                let mut value = HeaderValue::from_str(&format!("Bearer {}", key.expose()))?;
                value.set_sensitive(true);
                Some(value)
            }
            None => None,
        };
        Ok(Self {
            routes: Routes::new(settings.extra_routes.iter().map(Route::from)),
            retry: settings.retry,
            api_keys: settings.api_keys.clone(),
            allow_pins: settings.allow_pins,
            pin_api_keys: settings.pin_api_keys.clone(),
            default_model: settings.default_model.clone(),
            wanted: Wanted {
                session: settings.routing.kind == Kind::Session,
                session_key: settings.session_key.clone(),
                prompt: settings.routing.kind == Kind::PrefixAware,
            },
            session_header: settings
                .session_key
                .as_ref()
                .filter(|_| settings.routing.kind == Kind::Session)
                .and_then(|key| key.parse().ok()),
            engine_credential,
            max_body: settings.max_request_body_bytes,
            connect_timeout: settings.connect_timeout,
            engine_keepalive: settings.engine_keepalive,
            hold: settings.hold_timeout.map(|timeout| Hold {
                timeout,
                most: settings.hold_queue_size,
            }),
        })
    }

    /// The key an engine is to see of a request with these fields.
    pub(super) fn credential(&self, fields: &HeaderMap) -> Credential<'_> {
        match &self.engine_credential {
            Some(value) => Credential::Own(value),
            None if self.clients_authorization(fields).is_some() => Credential::Clients,
            None => Credential::Nobodys,
        }
    }

    /// The client's own `Authorization`, where that is for engines: it is not where it may be a
    /// key of the router.
    pub(super) fn clients_authorization<'f>(
        &self,
        fields: &'f HeaderMap,
    ) -> Option<&'f HeaderValue> {
        let is_ours = !self.api_keys.is_empty() || holds_one_of(&self.pin_api_keys, fields);
        fields.get(http::header::AUTHORIZATION).filter(|_| !is_ours)
    }
}
