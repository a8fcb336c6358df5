//! A collector of spans, over gRPC or HTTP, that keeps what it is sent.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{self, ResourceSpans};
use prost::Message as _;
use rcgen::{CertifiedKey, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::{PATIENCE, within};

/// The path of the export call over gRPC.
const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// A collector that listens.
pub struct Collector {
    addr: SocketAddr,
    protocol: Protocol,
    spans: watch::Receiver<Vec<Span>>,
}

#[derive(Clone, Copy, Debug)]
enum Protocol {
    Grpc,
    Http,
}

/// What was said of one span. Numbers and switches are as text.
#[derive(Clone, Debug)]
pub struct Span {
    pub name: String,
    pub kind: SpanKind,
    pub trace: String,
    pub id: String,
    /// Empty where it has none.
    pub parent: String,
    pub state: String,
    pub is_sampled: bool,
    pub is_error: bool,
    /// Since the epoch.
    pub start: Duration,
    pub end: Duration,
    pub attributes: HashMap<String, String>,
    pub events: Vec<SpanEvent>,
    /// What the spans are of.
    pub resource: HashMap<String, String>,
}

#[derive(Clone, Debug)]
pub struct SpanEvent {
    pub name: String,
    pub at: Duration,
    pub attributes: HashMap<String, String>,
}

impl Span {
    /// The value of an attribute; nothing where there is none.
    pub fn get(&self, key: &str) -> &str {
        self.attributes.get(key).map_or("", String::as_str)
    }

    /// How long it took.
    pub fn took(&self) -> Duration {
        self.end
            .checked_sub(self.start)
            .expect("it ends after it began")
    }

    /// Panics unless these attributes have these values; nothing means that it is not there.
    #[track_caller]
    pub fn assert_says<const N: usize>(&self, attributes: [(&str, &str); N]) {
        for (key, value) in attributes {
            assert_eq!(self.get(key), value, "{key} of {self:#?}");
        }
    }
}

impl Collector {
    /// One that is spoken to over gRPC.
    pub async fn grpc() -> Self {
        Self::listen(Protocol::Grpc, None).await
    }

    /// One that is spoken to over HTTP/1.1.
    pub async fn http() -> Self {
        Self::listen(Protocol::Http, None).await
    }

    /// Both kinds, behind TLS with this certificate and its key.
    pub async fn both_over_tls(certificate: &CertifiedKey<KeyPair>) -> [Self; 2] {
        let key = PrivatePkcs8KeyDer::from(certificate.signing_key.serialize_der());
        let tls = |protocol: &[u8]| {
            let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
                .with_safe_default_protocol_versions()
                .expect("the versions of the provider")
                .with_no_client_auth()
                .with_single_cert(vec![certificate.cert.der().clone()], key.clone_key().into())
                .expect("a key of this certificate");
            config.alpn_protocols = vec![protocol.to_vec()];
            Some(TlsAcceptor::from(Arc::new(config)))
        };
        [
            Self::listen(Protocol::Grpc, tls(b"h2")).await,
            Self::listen(Protocol::Http, tls(b"http/1.1")).await,
        ]
    }

    async fn listen(protocol: Protocol, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        let (sender, spans) = watch::channel(Vec::new());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, sender) = (tls.clone(), sender.clone());
                tokio::spawn(async move {
                    match tls {
                        Some(tls) => {
                            let stream = tls.accept(stream).await.expect("a TLS client");
                            protocol.serve(stream, &sender).await;
                        }
                        None => protocol.serve(stream, &sender).await,
                    }
                });
            }
        });
        Self {
            addr,
            protocol,
            spans,
        }
    }

    /// `localhost:PORT`, which is also the name in certificates.
    pub fn authority(&self) -> String {
        format!("localhost:{}", self.addr.port())
    }

    /// The word for its protocol in the settings.
    pub fn protocol(&self) -> &'static str {
        match self.protocol {
            Protocol::Grpc => "grpc",
            Protocol::Http => "http",
        }
    }

    /// The settings of a router that sends its spans here, as lines of YAML.
    pub fn settings(&self) -> String {
        let (addr, protocol) = (self.addr, self.protocol());
        format!("otel_endpoint: http://{addr}\notel_protocol: {protocol}\n")
    }

    /// Waits for at least `n` spans, and returns them all in the order they came: those of a
    /// request together, and its own first.
    pub async fn wait_for_spans(&self, n: usize) -> Vec<Span> {
        let mut spans = self.spans.clone();
        let complaint = || format!("{} of {n} spans came", self.spans.borrow().len());
        let enough = async {
            let spans = spans.wait_for(|spans| spans.len() >= n).await;
            spans.expect("the collector listens").clone()
        };
        within(PATIENCE, complaint, enough).await
    }

    /// The spans that came so far.
    pub fn spans(&self) -> Vec<Span> {
        self.spans.borrow().clone()
    }
}

impl Protocol {
    async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
        self,
        stream: S,
        spans: &watch::Sender<Vec<Span>>,
    ) {
        match self {
            Self::Grpc => serve_grpc(stream, spans).await,
            Self::Http => serve_http(stream, spans).await,
        }
    }
}

async fn serve_grpc<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    spans: &watch::Sender<Vec<Span>>,
) {
    let mut connection = h2::server::handshake(stream).await.expect("HTTP/2");
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        assert_eq!(request.uri().path(), EXPORT);
        let spans = spans.clone();
        // The connection has to be asked for more meanwhile, so that the body comes.
        tokio::spawn(async move {
            let mut body = request.into_body();
            let mut message = Vec::new();
            while let Some(Ok(data)) = body.data().await {
                let _ = body.flow_control().release_capacity(data.len());
                message.extend_from_slice(&data);
            }
            // A flag, which says that it is not compressed, and the length.
            assert_eq!(message[0], 0);
            take(&spans, &message[5..]);
            let head = http::Response::builder().header("content-type", "application/grpc");
            let mut response = respond
                .send_response(head.body(()).expect("a head"), false)
                .expect("a stream");
            let nothing = Bytes::from_static(&[0; 5]);
            response.send_data(nothing, false).expect("a stream");
            let ok = (
                http::HeaderName::from_static("grpc-status"),
                http::HeaderValue::from_static("0"),
            );
            let trailers = [ok].into_iter().collect();
            response.send_trailers(trailers).expect("a stream");
        });
    }
}

async fn serve_http<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    spans: &watch::Sender<Vec<Span>>,
) {
    const HEAD: &str = "POST /v1/traces HTTP/1.1\r\n";
    let mut received = Vec::new();
    while let Ok(1..) = stream.read_buf(&mut received).await {
        let Some(end) = received.windows(4).position(|four| four == b"\r\n\r\n") else {
            continue;
        };
        let head = std::str::from_utf8(&received[..end + 2]).expect("text");
        let head = head.to_ascii_lowercase();
        assert!(head.starts_with(&HEAD.to_ascii_lowercase()), "{head}");
        assert!(
            head.contains("\r\ncontent-type: application/x-protobuf\r\n"),
            "{head}"
        );
        let length = head.split("\r\ncontent-length: ").nth(1).expect("a length");
        let length: usize = length
            .lines()
            .next()
            .expect("a number")
            .parse()
            .expect("a number");
        let Some(body) = received.get(end + 4..end + 4 + length) else {
            continue;
        };
        take(spans, body);
        received.drain(..end + 4 + length);
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(answer).await.expect("a client");
    }
}

fn take(spans: &watch::Sender<Vec<Span>>, message: &[u8]) {
    let request = ExportTraceServiceRequest::decode(message).expect("an export request");
    spans.send_modify(|spans| spans.extend(request.resource_spans.iter().flat_map(read)));
}

fn read(of: &ResourceSpans) -> Vec<Span> {
    let resource = of.resource.as_ref().expect("a resource");
    let resource = attributes(&resource.attributes);
    let spans = of.scope_spans.iter().flat_map(|scope| &scope.spans);
    spans.map(|span| read_span(span, &resource)).collect()
}

fn read_span(span: &v1::Span, resource: &HashMap<String, String>) -> Span {
    let event = |event: &v1::span::Event| SpanEvent {
        name: event.name.clone(),
        at: Duration::from_nanos(event.time_unix_nano),
        attributes: attributes(&event.attributes),
    };
    let status = span.status.as_ref().map(v1::Status::code);
    Span {
        name: span.name.clone(),
        kind: span.kind(),
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        state: span.trace_state.clone(),
        is_sampled: span.flags & 1 == 1,
        is_error: status == Some(StatusCode::Error),
        start: Duration::from_nanos(span.start_time_unix_nano),
        end: Duration::from_nanos(span.end_time_unix_nano),
        attributes: attributes(&span.attributes),
        events: span.events.iter().map(event).collect(),
        resource: resource.clone(),
    }
}

fn attributes(pairs: &[KeyValue]) -> HashMap<String, String> {
    let text = |value: &Option<AnyValue>| match value.as_ref().and_then(|any| any.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        Some(Value::BoolValue(on)) => on.to_string(),
        other => panic!("{other:?} was not expected"),
    };
    let pairs = pairs
        .iter()
        .map(|pair| (pair.key.clone(), text(&pair.value)));
    let mut found = HashMap::new();
    for (key, value) in pairs {
        let twice = found.insert(key, value);
        assert_eq!(twice, None, "an attribute came twice");
    }
    found
}

fn hex(bytes: &[u8]) -> String {
    let halves = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    halves
        .filter_map(|half| char::from_digit(half.into(), 16))
        .collect()
}
