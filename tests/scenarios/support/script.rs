//! What an engine is told to do: a [`Script`] of [`Reply`]s, each made of a few verbs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::engine::Delivery;
use super::wire::{Close, Framing, Headers};

/// A place in an exchange at which the engine can end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// After the request's headers, its body unread.
    Headers,
    /// After the whole request.
    Request,
    /// After the head of the response.
    ResponseHead,
    /// After this many bytes of the response's body; chunk framing is not counted.
    BodyBytes(usize),
    /// After this many whole pieces: chunks, or events.
    Pieces(usize),
    /// Half way through the last piece; if chunked, its whole size has been announced.
    InsideChunk,
    /// After the last piece, before the chunked terminator.
    BodyEnd,
    /// Inside the terminator: after `0\r\n`, before the last CRLF.
    BeforeFinalCrlf,
    /// After the complete response.
    ResponseEnd,
}

/// How an engine treats one request. Cheap to clone.
#[derive(Clone)]
pub struct Reply {
    payload: Payload,
    informational: Vec<(u16, &'static str)>,
    headers: Headers,
    framing: Framing,
    delay: Duration,
    cut: Option<(Point, Close)>,
    cut_delay: Duration,
    then: Then,
    pub(super) slow_upload: Option<(usize, Duration)>,
    pub(super) early: bool,
}

#[derive(Clone)]
enum Payload {
    Nothing,
    Raw(Vec<(Duration, Bytes)>),
    Http {
        status: u16,
        pieces: Vec<(Duration, Bytes)>,
    },
    Computed(Arc<dyn Fn(&Delivery) -> Reply + Send + Sync>),
}

/// What becomes of the connection after a response sent in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    KeepOpen,
    Close,
    ResetOnNextByte,
    HalfClose,
    /// No response was sent, and none will be.
    Hang,
    Cut(Close),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Wait(Duration),
    Send(Bytes),
}

/// A reply spelled out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub steps: Vec<Step>,
    pub then: Then,
}

/// 200 with this JSON body and its Content-Length, connection kept open.
pub fn ok(body: impl AsRef<[u8]>) -> Reply {
    status(200).body(body)
}

/// An empty answer with this status, connection kept open.
pub fn status(status: u16) -> Reply {
    Reply::of(Payload::Http {
        status,
        pieces: vec![],
    })
}

/// Reads the whole request and never answers.
pub fn hang() -> Reply {
    Reply {
        then: Then::Hang,
        ..Reply::of(Payload::Nothing)
    }
}

/// Exactly these bytes, nothing added; connection kept open.
pub fn raw(bytes: impl AsRef<[u8]>) -> Reply {
    raw_pieces([(Duration::ZERO, bytes)])
}

/// Exactly these bytes, each piece after its pause.
pub fn raw_pieces<B: AsRef<[u8]>>(pieces: impl IntoIterator<Item = (Duration, B)>) -> Reply {
    Reply::of(Payload::Raw(timed(pieces)))
}

/// 200, chunked: each piece is one chunk, sent after its pause.
pub fn chunks<B: AsRef<[u8]>>(pieces: impl IntoIterator<Item = (Duration, B)>) -> Reply {
    Reply {
        framing: Framing::Chunked,
        ..Reply::of(Payload::Http {
            status: 200,
            pieces: timed(pieces),
        })
    }
}

/// A 200 event stream of `n` [`event`]s `gap` apart, the first at once, then `data: [DONE]`.
pub fn sse(n: usize, gap: Duration) -> Reply {
    let pause = |i: usize| if i == 0 { Duration::ZERO } else { gap };
    let events = (0..n).map(|i| (pause(i), event(i)));
    chunks(events.chain([(Duration::ZERO, DONE.to_vec())]))
        .header("Content-Type", "text/event-stream")
}

const DONE: &[u8] = b"data: [DONE]\n\n";

/// Event number `i`, counted from 0, of an [`sse`] stream.
pub fn event(i: usize) -> Vec<u8> {
    format!("data: {{\"n\":{i}}}\n\n").into_bytes()
}

/// The whole body of an [`sse`] stream.
pub fn sse_body(n: usize) -> Vec<u8> {
    (0..n).flat_map(event).chain(DONE.iter().copied()).collect()
}

/// A 200 event stream of `total` bytes, one event of 64 KiB per chunk, as fast as the socket
/// takes it. The events share their memory.
pub fn flood(total: usize) -> Reply {
    const PIECE: usize = 64 * 1024;
    let mut piece = vec![b'x'; PIECE];
    piece[..6].copy_from_slice(b"data: ");
    piece[PIECE - 2..].copy_from_slice(b"\n\n");
    let piece = Bytes::from(piece);
    let pieces = (0..total.div_ceil(PIECE))
        .map(|i| (Duration::ZERO, piece.slice(..PIECE.min(total - i * PIECE))))
        .collect();
    Reply {
        framing: Framing::Chunked,
        ..Reply::of(Payload::Http {
            status: 200,
            pieces,
        })
    }
    .header("Content-Type", "text/event-stream")
}

/// A reply made for the request, once that has been read in full.
pub fn answer(reply: impl Fn(&Delivery) -> Reply + Send + Sync + 'static) -> Reply {
    Reply::of(Payload::Computed(Arc::new(reply)))
}

/// Ends the connection in good order at `point` of an otherwise empty 200.
pub fn fin_at(point: Point) -> Reply {
    ok("").fin_at(point)
}

/// Resets the connection at `point` of an otherwise empty 200.
pub fn rst_at(point: Point) -> Reply {
    ok("").rst_at(point)
}

fn timed<B: AsRef<[u8]>>(
    pieces: impl IntoIterator<Item = (Duration, B)>,
) -> Vec<(Duration, Bytes)> {
    let owned = |(pause, bytes): (Duration, B)| (pause, Bytes::copy_from_slice(bytes.as_ref()));
    pieces.into_iter().map(owned).collect()
}

impl Reply {
    fn of(payload: Payload) -> Self {
        Self {
            payload,
            informational: vec![],
            headers: Headers::default(),
            framing: Framing::Length(0),
            delay: Duration::ZERO,
            cut: None,
            cut_delay: Duration::ZERO,
            then: Then::KeepOpen,
            slow_upload: None,
            early: false,
        }
    }

    /// Adds a header line; order, case and duplicates are kept. Without one, the content type is
    /// JSON. A Content-Length given here is sent as it is, true or not.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push(name, value.as_bytes());
        self
    }

    /// The body, as one piece.
    pub fn body(mut self, body: impl AsRef<[u8]>) -> Self {
        let Payload::Http { pieces, .. } = &mut self.payload else {
            panic!("only an HTTP reply has a body");
        };
        let body = body.as_ref();
        *pieces = if body.is_empty() {
            vec![]
        } else {
            timed([(Duration::ZERO, body)])
        };
        self
    }

    /// Gives the answer another status.
    pub fn with_status(mut self, new: u16) -> Self {
        let Payload::Http { status, .. } = &mut self.payload else {
            panic!("only an HTTP reply has a status");
        };
        *status = new;
        self
    }

    /// Frames the body in chunks, one for each piece.
    pub fn chunked(mut self) -> Self {
        self.framing = Framing::Chunked;
        self
    }

    /// Frames the body by the end of the connection.
    pub fn until_close(mut self) -> Self {
        self.framing = Framing::UntilClose;
        self.then_close()
    }

    /// Frames the body by Content-Length (for replies that are chunked otherwise).
    pub fn with_length(mut self) -> Self {
        self.framing = Framing::Length(0);
        self
    }

    /// Sends an informational response first, such as `(103, "Early Hints")`.
    pub fn informational(mut self, status: u16, reason: &'static str) -> Self {
        self.informational.push((status, reason));
        self
    }

    /// Waits between the request and the first byte of the answer.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Says `Connection: close`, and closes after the response.
    pub fn close(self) -> Self {
        self.header("Connection", "close").then_close()
    }

    /// Closes after the response without having announced it.
    pub fn then_close(mut self) -> Self {
        self.then = Then::Close;
        self
    }

    /// Shuts down its side after the response, and goes on reading: later writes succeed, and
    /// are never answered. Requests read so are recorded, unanswered, and use up no reply.
    pub fn then_half_close(mut self) -> Self {
        self.then = Then::HalfClose;
        self
    }

    /// Resets the connection on the first byte that follows the response.
    pub fn then_rst_on_next_byte(mut self) -> Self {
        self.then = Then::ResetOnNextByte;
        self
    }

    /// Ends the connection in good order at `point`.
    pub fn fin_at(mut self, point: Point) -> Self {
        self.cut = Some((point, Close::Fin));
        self
    }

    /// Resets the connection at `point`.
    pub fn rst_at(mut self, point: Point) -> Self {
        self.cut = Some((point, Close::Reset));
        self
    }

    /// Stays silent for `delay` at the point of the cut before making it.
    pub fn cut_after(mut self, delay: Duration) -> Self {
        self.cut_delay = delay;
        self
    }

    /// Reads at most `bytes` of the request's body every `gap`.
    pub fn read_body_slowly(mut self, bytes: usize, gap: Duration) -> Self {
        self.slow_upload = Some((bytes, gap));
        self
    }

    /// Answers right after the request's headers; reads the body, if at all, only then.
    pub fn answer_before_body(mut self) -> Self {
        self.early = true;
        self
    }

    /// How to end the connection with the request's body unread, if so told.
    pub(super) fn cut_at_headers(&self) -> Option<(Close, Duration)> {
        self.cut
            .filter(|(point, _)| *point == Point::Headers)
            .map(|(_, how)| (how, self.cut_delay))
    }

    /// Makes the reply for this request, if it depends on it.
    pub(super) fn computed(self, request: &Delivery) -> Self {
        match &self.payload {
            Payload::Computed(reply) => reply(request).computed(request),
            _ => self,
        }
    }

    /// Spells the reply out, for a request with this method.
    pub(super) fn plan(&self, method: &str) -> Plan {
        let mut plan = Planner {
            steps: vec![],
            cut: self.cut,
            body_sent: 0,
        };
        plan.wait(self.delay);
        let then = match self.write(method, &mut plan) {
            Ok(()) => {
                if let Some((point, _)) = plan.cut {
                    panic!("this reply never gets to the point {point:?}");
                }
                self.then
            }
            Err(Cut(how)) => {
                plan.wait(self.cut_delay);
                Then::Cut(how)
            }
        };
        Plan {
            steps: plan.steps,
            then,
        }
    }

    fn write(&self, method: &str, plan: &mut Planner) -> Result<(), Cut> {
        plan.reach(Point::Request)?;
        match &self.payload {
            Payload::Computed(_) => panic!("an answer to the request cannot come before its body"),
            Payload::Nothing => return Ok(()),
            Payload::Raw(pieces) => {
                for (sent, (pause, bytes)) in pieces.iter().enumerate() {
                    plan.wait(*pause);
                    plan.piece(bytes, Framing::UntilClose, sent + 1 == pieces.len())?;
                    plan.reach(Point::Pieces(sent + 1))?;
                }
            }
            Payload::Http { status, pieces } => {
                let bodiless = matches!(status, 204 | 304);
                plan.send(self.head(*status, pieces, bodiless));
                plan.reach(Point::ResponseHead)?;
                if method != "HEAD" && !bodiless {
                    self.write_body(pieces, plan)?;
                }
            }
        }
        plan.reach(Point::ResponseEnd)
    }

    fn write_body(&self, pieces: &[(Duration, Bytes)], plan: &mut Planner) -> Result<(), Cut> {
        plan.reach(Point::BodyBytes(0))?;
        for (sent, (pause, bytes)) in pieces.iter().enumerate() {
            plan.wait(*pause);
            plan.piece(bytes, self.framing, sent + 1 == pieces.len())?;
            plan.reach(Point::Pieces(sent + 1))?;
        }
        plan.reach(Point::BodyEnd)?;
        if self.framing == Framing::Chunked {
            if plan
                .cut
                .is_some_and(|(point, _)| point == Point::BeforeFinalCrlf)
            {
                plan.send(b"0\r\n".to_vec());
                plan.reach(Point::BeforeFinalCrlf)?;
            }
            plan.send(b"0\r\n\r\n".to_vec());
        }
        Ok(())
    }

    fn head(&self, status: u16, pieces: &[(Duration, Bytes)], bodiless: bool) -> Vec<u8> {
        let reason = |code| {
            let known = http::StatusCode::from_u16(code)
                .ok()
                .and_then(|s| s.canonical_reason());
            known.unwrap_or("Unnamed")
        };
        let mut head = Vec::new();
        for (code, reason) in &self.informational {
            head.extend_from_slice(format!("HTTP/1.1 {code} {reason}\r\n\r\n").as_bytes());
        }
        head.extend_from_slice(format!("HTTP/1.1 {status} {}\r\n", reason(status)).as_bytes());
        let mut headers = Headers::default();
        if !bodiless && !self.headers.has("content-type") {
            headers.push("Content-Type", b"application/json");
        }
        for (name, value) in self.headers.iter() {
            headers.push(name, value);
        }
        match self.framing {
            Framing::Chunked if !bodiless => headers.push("Transfer-Encoding", b"chunked"),
            Framing::Length(_) if !bodiless && !self.headers.has("content-length") => {
                let length: usize = pieces.iter().map(|(_, bytes)| bytes.len()).sum();
                headers.push("Content-Length", length.to_string().as_bytes());
            }
            _ => {}
        }
        headers.write_to(&mut head);
        head.extend_from_slice(b"\r\n");
        head
    }
}

/// The point of the cut has been reached.
struct Cut(Close);

struct Planner {
    steps: Vec<Step>,
    cut: Option<(Point, Close)>,
    body_sent: usize,
}

impl Planner {
    fn wait(&mut self, pause: Duration) {
        if !pause.is_zero() {
            self.steps.push(Step::Wait(pause));
        }
    }

    fn send(&mut self, bytes: impl Into<Bytes>) {
        self.steps.push(Step::Send(bytes.into()));
    }

    fn reach(&mut self, here: Point) -> Result<(), Cut> {
        match self.cut {
            Some((point, how)) if point == here => Err(Cut(how)),
            _ => Ok(()),
        }
    }

    /// Sends one piece, or as much of it as comes before the cut.
    fn piece(&mut self, bytes: &Bytes, framing: Framing, last: bool) -> Result<(), Cut> {
        if bytes.is_empty() {
            return Ok(()); // an empty chunk would be the terminator
        }
        let (sent, end) = (self.body_sent, self.body_sent + bytes.len());
        let kept = match self.cut {
            Some((Point::BodyBytes(k), how)) if k <= end => Some((k - sent, how)),
            Some((Point::InsideChunk, how)) if last => Some((bytes.len() / 2, how)),
            _ => None,
        };
        let part = bytes.slice(..kept.map_or(bytes.len(), |(kept, _)| kept));
        self.body_sent += part.len();
        if framing == Framing::Chunked {
            // One write for each chunk, so that the engine looks like a server that flushes it.
            let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
            chunk.extend_from_slice(&part);
            if kept.is_none() {
                chunk.extend_from_slice(b"\r\n");
            }
            self.send(chunk);
        } else {
            self.send(part);
        }
        kept.map_or(Ok(()), |(_, how)| Err(Cut(how)))
    }
}

/// The replies of an engine, used up one for each request in the order the requests' headers
/// arrive, on whichever connection. The last one is repeated for ever.
#[derive(Clone)]
pub struct Script {
    lists: Vec<Vec<Reply>>,
    by_connection: bool,
    cycle: bool,
    routes: Vec<(String, Vec<Reply>)>,
    pub(super) idle_close: Option<Duration>,
    pub(super) forget_bodies: bool,
}

/// A script of these replies.
pub fn script(replies: impl Into<Script>) -> Script {
    replies.into()
}

/// What an engine says that serves the model `m`, besides these replies.
pub fn serving_m(replies: impl Into<Script>) -> Script {
    let models = ok(r#"{"object":"list","data":[{"id":"m","object":"model"}]}"#);
    script(replies)
        .on("/v1/models", models)
        .on("/health", ok(""))
}

/// A script for each connection by itself: its n-th request gets the n-th reply of its list.
/// The first list is for the first connection, and so on; the last is for all that follow.
pub fn connections<const N: usize>(lists: [Vec<Reply>; N]) -> Script {
    Script::of(lists.into(), true)
}

impl From<Reply> for Script {
    fn from(reply: Reply) -> Self {
        Self::of(vec![vec![reply]], false)
    }
}

impl<const N: usize> From<[Reply; N]> for Script {
    fn from(replies: [Reply; N]) -> Self {
        Self::of(vec![replies.into()], false)
    }
}

impl From<Vec<Reply>> for Script {
    fn from(replies: Vec<Reply>) -> Self {
        Self::of(vec![replies], false)
    }
}

impl Script {
    fn of(lists: Vec<Vec<Reply>>, by_connection: bool) -> Self {
        assert!(
            !lists.is_empty() && lists.iter().all(|l| !l.is_empty()),
            "a script needs replies"
        );
        Self {
            lists,
            by_connection,
            cycle: false,
            routes: vec![],
            idle_close: None,
            forget_bodies: false,
        }
    }

    /// Starts again after the last reply instead of repeating it.
    pub fn cycle(mut self) -> Self {
        self.cycle = true;
        self
    }

    /// Requests for exactly this path (query left aside) get replies of their own, and are
    /// recorded apart: health probes, for instance, use up nothing of the script.
    pub fn on(mut self, path: &str, replies: impl Into<Script>) -> Self {
        let Script { mut lists, .. } = replies.into();
        self.routes.push((path.to_owned(), lists.remove(0)));
        self
    }

    /// Closes a connection that has been idle for this long since its last response.
    pub fn idle_close(mut self, idle: Duration) -> Self {
        self.idle_close = Some(idle);
        self
    }

    /// Keeps only length and hash of the requests' bodies, and no raw bytes.
    pub fn forget_bodies(mut self) -> Self {
        self.forget_bodies = true;
        self
    }
}

/// A script and how far it has been played.
pub(super) struct Playback {
    pub script: Script,
    played: usize,
    routes_played: Vec<usize>,
    /// By connection: which list it was given, and how much of that is played.
    connections: HashMap<usize, (usize, usize)>,
}

impl Playback {
    pub fn new(script: Script) -> Self {
        let routes_played = vec![0; script.routes.len()];
        Self {
            script,
            played: 0,
            routes_played,
            connections: HashMap::new(),
        }
    }

    /// The next reply, and whether it comes from a route rather than from the script itself.
    pub fn next(&mut self, path: &str, connection: usize) -> (Reply, bool) {
        let nth = |list: &[Reply], n: usize, cycle: bool| {
            list[if cycle {
                n % list.len()
            } else {
                n.min(list.len() - 1)
            }]
            .clone()
        };
        if let Some(route) = self
            .script
            .routes
            .iter()
            .position(|(routed, _)| routed == path)
        {
            let played = &mut self.routes_played[route];
            *played += 1;
            return (nth(&self.script.routes[route].1, *played - 1, false), true);
        }
        let (list, played) = if self.script.by_connection {
            let newest = self.connections.len().min(self.script.lists.len() - 1);
            let (list, played) = self.connections.entry(connection).or_insert((newest, 0));
            (*list, played)
        } else {
            (0, &mut self.played)
        };
        *played += 1;
        (
            nth(&self.script.lists[list], *played - 1, self.script.cycle),
            false,
        )
    }
}
