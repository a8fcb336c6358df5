//! The collector, over gRPC or HTTP.
//!
//! Headers, compression and attributes of the service come from the standard variables of the
//! environment, which the library reads.

use std::io;

use hyper_rustls::HttpsConnectorBuilder;
use opentelemetry::KeyValue;
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_otlp::tonic_types::transport::ClientTlsConfig;
use opentelemetry_otlp::{
    ExporterBuildError, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
    WithTonicConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanExporter as _;
use rustls::crypto::ring;

use super::{Options, Protocol};
use crate::config::CollectorUrl;

/// Why there is no way to the collector.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    /// The system's certificates cannot be read.
    #[error("no certificates to know the collector by: {0}")]
    Certificates(#[from] io::Error),
    /// The library refuses what it was told.
    #[error(transparent)]
    Refused(#[from] ExporterBuildError),
}

/// The way to `endpoint`; connects when there is something to send.
pub(super) fn connect(
    endpoint: &CollectorUrl,
    options: &Options,
) -> Result<SpanExporter, CollectorError> {
    let url = endpoint.to_string();
    let mut exporter = match options.protocol {
        Protocol::Grpc => {
            let builder = SpanExporter::builder().with_tonic();
            let builder = builder.with_endpoint(url).with_timeout(options.timeout);
            if endpoint.is_https() {
                let tls = ClientTlsConfig::new().with_enabled_roots();
                builder.with_tls_config(tls).build()?
            } else {
                builder.build()?
            }
        }
        Protocol::Http => {
            let builder = SpanExporter::builder().with_http();
            let builder = builder.with_endpoint(url).with_timeout(options.timeout);
            let builder = builder.with_protocol(opentelemetry_otlp::Protocol::HttpBinary);
            // Certificates are read only where they are needed.
            if endpoint.is_https() {
                let connector = HttpsConnectorBuilder::new()
                    .with_provider_and_native_roots(ring::default_provider())?
                    .https_only()
                    .enable_http1()
                    .build();
                let client = HyperClient::new(connector, options.timeout, None);
                builder.with_http_client(client).build()?
            } else {
                let client = HyperClient::with_default_connector(options.timeout, None);
                builder.with_http_client(client).build()?
            }
        }
    };
    exporter.set_resource(&resource(&options.service_name));
    Ok(exporter)
}

/// What the spans are of: the service, and what the environment says of it.
fn resource(service_name: &str) -> Resource {
    Resource::builder()
        .with_service_name(service_name.to_owned())
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build()
}
