//! The part of a Kubernetes API server that lists and watches `EndpointSlice`s.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use rcgen::{CertifiedKey, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::{PATIENCE, Scratch, ScriptedEngine, within};

/// How the server says that it has forgotten where a watch wants to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// As an event of a watch that has begun.
    InTheWatch,
    /// As the answer to the question for one.
    AtOnce,
}

/// An API server of the test's own.
pub struct KubeApi {
    addr: SocketAddr,
    shared: Arc<Shared>,
    kubeconfig: PathBuf,
    _scratch: Scratch,
    _serving: JoinSet<()>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changes: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    version: u64,
    slices: BTreeMap<String, Value>,
    /// What has happened, and the version it made.
    history: Vec<(u64, Value)>,
    /// Of no watch from before this version is it known how to go on, and how that is said.
    forgotten: Option<(u64, Gone)>,
    /// What to answer instead of everything.
    refusal: Option<u16>,
    watches: Vec<mpsc::UnboundedSender<Wire>>,
    heads: Vec<String>,
}

/// Something to be sent over a watch.
enum Wire {
    Event(Value),
    End,
    /// In the middle of an event.
    Break,
}

const PATH: &str = "/apis/discovery.k8s.io/v1/namespaces/ours/endpointslices";
const TOKEN: &str = "a-token-of-the-test";

/// A slice of this name: these pods, each a name, an address and whether it is ready, and a port
/// called http.
pub fn pods(name: &str, port: u16, pods: &[(&str, &str, bool)]) -> Value {
    let endpoint = |(pod, address, ready): &(&str, &str, bool)| {
        json!({
            "addresses": [address],
            "conditions": {"ready": ready, "serving": ready, "terminating": !ready},
            "targetRef": {"kind": "Pod", "name": pod, "namespace": "ours"},
        })
    };
    json!({
        "metadata": {
            "name": name,
            "namespace": "ours",
            "labels": {"kubernetes.io/service-name": "vllm"},
        },
        "addressType": "IPv4",
        "endpoints": pods.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
    })
}

impl KubeApi {
    pub async fn start() -> Self {
        Self::listen(None).await
    }

    /// One behind TLS, with a certificate that only its kubeconfig makes good.
    pub async fn start_over_tls() -> Self {
        let names = vec!["127.0.0.1".to_owned()];
        Self::listen(Some(&rcgen::generate_simple_self_signed(names).unwrap())).await
    }

    async fn listen(certificate: Option<&CertifiedKey<KeyPair>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let tls = certificate.map(acceptor);
        let shared: Arc<Shared> = Arc::default();
        shared.state().version = 100;
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, tls, Arc::clone(&shared)));
        let scratch = Scratch::new();
        let authority = certificate.map(|it| scratch.write("authority.pem", &it.cert.pem()));
        Self {
            addr,
            kubeconfig: scratch.write("kubeconfig", &kubeconfig(addr, authority)),
            shared,
            _scratch: scratch,
            _serving: serving,
        }
    }

    /// The settings that make a router find the pods of the Service `vllm` here.
    pub fn settings(&self) -> String {
        format!(
            "service_discovery: k8s\nk8s_service_name: vllm\nk8s_port: http\nk8s_kubeconfig: \"{}\"\n",
            self.kubeconfig.display()
        )
    }

    /// Such as `127.0.0.1:4711`.
    pub fn authority(&self) -> String {
        self.addr.to_string()
    }

    /// The file that says how to reach it.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Puts a slice in the place of the one of its name, if there is one.
    pub fn apply(&self, slice: Value) {
        self.shared.state().happen(slice, false);
    }

    /// A slice with one ready pod, which is this engine.
    pub fn apply_engine(&self, pod: &str, engine: &ScriptedEngine) {
        let addr = engine.addr();
        let ip = addr.ip().to_string();
        self.apply(pods(pod, addr.port(), &[(pod, &ip, true)]));
    }

    pub fn delete(&self, name: &str) {
        let slice = self.shared.state().slices.remove(name).expect("a slice");
        self.shared.state().happen(slice, true);
    }

    /// Lets time pass: the version grows by what happens to other objects, and watches are told.
    pub fn bookmark(&self) -> u64 {
        let mut state = self.shared.state();
        state.version += 10;
        let version = state.version;
        state.send(|| {
            Wire::Event(json!({
                "type": "BOOKMARK",
                "object": {
                    "kind": "EndpointSlice",
                    "apiVersion": "discovery.k8s.io/v1",
                    "metadata": {"resourceVersion": version.to_string()},
                    "addressType": "",
                    "endpoints": null,
                },
            }))
        });
        version
    }

    /// Ends all watches, as the server does when their time is up.
    pub fn end_watches(&self) {
        self.shared.state().end(|| Wire::End);
    }

    /// Breaks all watches off in the middle of an event.
    pub fn break_watches(&self) {
        self.shared.state().end(|| Wire::Break);
    }

    /// Ends all watches and forgets what has happened so far.
    pub fn forget(&self, how: Gone) {
        let mut state = self.shared.state();
        state.version += 1;
        state.forgotten = Some((state.version, how));
        state.history.clear();
        state.end(|| Wire::End);
    }

    /// Breaks all watches off, and answers everything with this status.
    pub fn refuse(&self, status: u16) {
        let mut state = self.shared.state();
        state.refusal = Some(status);
        state.end(|| Wire::Break);
    }

    pub fn serve_again(&self) {
        self.shared.state().refusal = None;
    }

    /// The questions for lists so far.
    pub fn lists(&self) -> Vec<String> {
        self.questions(|target| !target.contains("watch=true"))
    }

    /// The questions for watches so far.
    pub fn watches(&self) -> Vec<String> {
        self.questions(|target| target.contains("watch=true"))
    }

    fn questions(&self, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let state = self.shared.state();
        let targets = state.heads.iter().filter_map(|head| head.split(' ').nth(1));
        targets
            .filter(|t| wanted(t))
            .map(ToOwned::to_owned)
            .collect()
    }

    /// Waits until there are so many lists and watches at least.
    pub async fn wait_for(&self, lists: usize, watches: usize) {
        let mut changes = self.shared.changes.subscribe();
        let asked = async {
            while self.lists().len() < lists || self.watches().len() < watches {
                changes.changed().await.unwrap();
            }
        };
        let complaint = || format!("{:?}\n{:?}", self.lists(), self.watches());
        within(PATIENCE, complaint, asked).await;
    }

    /// Waits until there is a watch whose question says this.
    pub async fn wait_for_watch(&self, what: &str) {
        let mut changes = self.shared.changes.subscribe();
        let asked = async {
            while !self.watches().iter().any(|watch| watch.contains(what)) {
                changes.changed().await.unwrap();
            }
        };
        within(PATIENCE, || format!("{:?}", self.watches()), asked).await;
    }

    /// Panics unless every question carried the token and nothing else was asked for.
    #[track_caller]
    pub fn assert_clean(&self) {
        for head in &self.shared.state().heads {
            assert!(head.starts_with(&format!("GET {PATH}?")), "{head}");
            assert!(head.contains(&format!("Bearer {TOKEN}")), "{head}");
        }
    }
}

fn kubeconfig(addr: SocketAddr, authority: Option<PathBuf>) -> String {
    let cluster = match authority {
        None => json!({"server": format!("http://{addr}")}),
        Some(file) => json!({
            "server": format!("https://{addr}"),
            "certificate-authority": file,
        }),
    };
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "ours"}}],
        "current-context": "x",
    })
    .to_string()
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl State {
    fn happen(&mut self, mut slice: Value, deleted: bool) {
        self.version += 1;
        let name = slice["metadata"]["name"].as_str().unwrap().to_owned();
        slice["metadata"]["resourceVersion"] = self.version.to_string().into();
        let kind = match (deleted, self.slices.contains_key(&name)) {
            (true, _) => "DELETED",
            (false, true) => "MODIFIED",
            (false, false) => "ADDED",
        };
        let event = json!({"type": kind, "object": typed(&slice)});
        if !deleted {
            self.slices.insert(name, slice);
        }
        self.history.push((self.version, event.clone()));
        self.send(|| Wire::Event(event.clone()));
    }

    fn send(&mut self, wire: impl Fn() -> Wire) {
        self.watches.retain(|watch| watch.send(wire()).is_ok());
    }

    fn end(&mut self, how: impl Fn() -> Wire) {
        self.send(how);
        self.watches.clear();
    }

    fn list(&self) -> String {
        json!({
            "kind": "EndpointSliceList",
            "apiVersion": "discovery.k8s.io/v1",
            "metadata": {"resourceVersion": self.version.to_string()},
            "items": self.slices.values().collect::<Vec<_>>(),
        })
        .to_string()
    }

    /// A watch from this version on; or how it is said that there is none.
    fn watch(&mut self, from: u64) -> Result<mpsc::UnboundedReceiver<Wire>, Gone> {
        if let Some((first, how)) = self.forgotten
            && from < first
        {
            return Err(how);
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        for (_, event) in self.history.iter().filter(|(version, _)| *version > from) {
            sender.send(Wire::Event(event.clone())).unwrap();
        }
        self.watches.push(sender);
        Ok(receiver)
    }
}

/// An object says what it is when it stands alone.
fn typed(slice: &Value) -> Value {
    let mut slice = slice.clone();
    slice["kind"] = "EndpointSlice".into();
    slice["apiVersion"] = "discovery.k8s.io/v1".into();
    slice
}

fn failure(code: u16) -> Value {
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": format!("refused with {code}"),
        "reason": if code == 410 { "Expired" } else { "Forbidden" },
        "code": code,
    })
}

fn acceptor(certificate: &CertifiedKey<KeyPair>) -> TlsAcceptor {
    let key = PrivatePkcs8KeyDer::from(certificate.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.cert.der().clone()], key.into());
    TlsAcceptor::from(Arc::new(config.unwrap()))
}

async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, shared) = (tls.clone(), Arc::clone(&shared));
        connections.spawn(async move {
            // It ends when the client does.
            let _ = match tls {
                None => converse(stream, &shared).await,
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => converse(stream, &shared).await,
                    Err(error) => Err(error),
                },
            };
        });
    }
}

async fn converse(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    shared: &Shared,
) -> io::Result<()> {
    let mut received = Vec::new();
    loop {
        let head = loop {
            if let Some(end) = received.windows(4).position(|w| w == b"\r\n\r\n") {
                let rest = received.split_off(end + 4);
                break std::mem::replace(&mut received, rest);
            }
            if stream.read_buf(&mut received).await? == 0 {
                return Ok(());
            }
        };
        let head = String::from_utf8(head).expect("a head that is text");
        let target = head.split(' ').nth(1).expect("a target").to_owned();
        let refusal = {
            let mut state = shared.state();
            state.heads.push(head);
            state.refusal
        };
        shared.changes.send_replace(());
        if let Some(code) = refusal {
            respond(&mut stream, code, &failure(code).to_string()).await?;
        } else if let Some(from) = query(&target, "resourceVersion")
            && target.contains("watch=true")
        {
            let watch = shared.state().watch(from.parse().expect("a version"));
            if !tell(&mut stream, watch).await? {
                return Ok(());
            }
        } else {
            let list = shared.state().list();
            respond(&mut stream, 200, &list).await?;
        }
    }
}

fn query<'a>(target: &'a str, name: &str) -> Option<&'a str> {
    let (_, query) = target.split_once('?')?;
    let mut fields = query.split('&').filter_map(|field| field.split_once('='));
    fields.find(|(key, _)| *key == name).map(|(_, value)| value)
}

async fn respond(
    stream: &mut (impl AsyncWrite + Unpin),
    status: u16,
    body: &str,
) -> io::Result<()> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} Status\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await
}

/// Plays a watch; whether the connection is of use after it.
async fn tell(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    watch: Result<mpsc::UnboundedReceiver<Wire>, Gone>,
) -> io::Result<bool> {
    let mut watch = match watch {
        Ok(watch) => watch,
        Err(Gone::AtOnce) => {
            respond(stream, 410, &failure(410).to_string()).await?;
            return Ok(true);
        }
        Err(Gone::InTheWatch) => {
            let (sender, receiver) = mpsc::unbounded_channel();
            let event = json!({"type": "ERROR", "object": failure(410)});
            sender.send(Wire::Event(event)).unwrap();
            sender.send(Wire::End).unwrap();
            receiver
        }
    };
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    loop {
        let wire = tokio::select! {
            wire = watch.recv() => wire,
            // The client says nothing more; it may leave.
            _ = stream.read_u8() => return Ok(false),
        };
        match wire {
            Some(Wire::Event(event)) => {
                let line = format!("{event}\n");
                let chunk = format!("{:x}\r\n{line}\r\n", line.len());
                stream.write_all(chunk.as_bytes()).await?;
            }
            Some(Wire::Break) => {
                stream.write_all(b"40\r\n{\"type\":\"ADDED\",\"obj").await?;
                return Ok(false);
            }
            Some(Wire::End) | None => {
                stream.write_all(b"0\r\n\r\n").await?;
                return Ok(true);
            }
        }
    }
}
