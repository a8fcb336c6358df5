//! A collector of spans, over gRPC or HTTP, that keeps what it is sent.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{self, ResourceSpans};
use prost::Message as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::{PATIENCE, ScriptedEngine, answer, status, within};

/// The path of the export call over gRPC.
const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// A collector that listens.
pub struct Collector {
    addr: SocketAddr,
    protocol: &'static str,
    spans: watch::Receiver<Vec<Span>>,
    /// The listener of the one over HTTP.
    _http: Option<ScriptedEngine>,
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
        self.end - self.start
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
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        let (sender, spans) = watch::channel(Vec::new());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve_grpc(stream, sender.clone()));
            }
        });
        Self {
            addr,
            protocol: "grpc",
            spans,
            _http: None,
        }
    }

    /// One that is spoken to over HTTP/1.1.
    pub async fn http() -> Self {
        let (sender, spans) = watch::channel(Vec::new());
        let engine = ScriptedEngine::start(answer(move |delivery| {
            assert_eq!(delivery.method, "POST");
            assert_eq!(delivery.target, "/v1/traces");
            let kind = delivery.headers.get("content-type");
            assert_eq!(kind, Some("application/x-protobuf"));
            take(&sender, &delivery.body);
            status(200)
        }))
        .await;
        Self {
            addr: engine.addr(),
            protocol: "http",
            spans,
            _http: Some(engine),
        }
    }

    /// The settings of a router that sends its spans here, as lines of YAML.
    pub fn settings(&self) -> String {
        format!(
            "otel_endpoint: http://{}\notel_protocol: {}\n",
            self.addr, self.protocol
        )
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

async fn serve_grpc(stream: TcpStream, spans: watch::Sender<Vec<Span>>) {
    let mut connection = h2::server::handshake(stream).await.expect("HTTP/2");
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let spans = spans.clone();
        tokio::spawn(async move {
            assert_eq!(request.uri().path(), EXPORT);
            let mut body = request.into_body();
            let mut message = Vec::new();
            while let Some(Ok(data)) = body.data().await {
                let _ = body.flow_control().release_capacity(data.len());
                message.extend_from_slice(&data);
            }
            // A flag, which says that it is not compressed, and the length.
            assert_eq!(message[0], 0);
            take(&spans, &message[5..]);
            let head = http::Response::builder()
                .header("content-type", "application/grpc")
                .body(())
                .expect("a head");
            let mut response = respond.send_response(head, false).expect("a stream");
            let nothing = Bytes::from_static(&[0; 5]);
            response.send_data(nothing, false).expect("a stream");
            let trailers = [("grpc-status", "0")].map(|(name, value)| {
                let name = http::HeaderName::from_static(name);
                (name, http::HeaderValue::from_static(value))
            });
            let trailers = trailers.into_iter().collect();
            response.send_trailers(trailers).expect("a stream");
        });
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
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
