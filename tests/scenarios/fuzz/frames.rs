//! Frames of HTTP/2: good requests, and what can be done to a connection.

use super::Dice;
use super::reading::Reading;
use crate::h2_requests::{
    DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, SETTINGS, fields, frame,
};

const PRIORITY: u8 = 2;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

/// One frame, before it is written.
#[derive(Clone, Debug)]
pub struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
    /// The target that its fields ask for.
    target: Option<String>,
}

impl Frame {
    fn new(kind: u8, flags: u8, stream: u32, payload: impl Into<Vec<u8>>) -> Self {
        Self {
            kind,
            flags,
            stream,
            payload: payload.into(),
            target: None,
        }
    }

    fn ends(&self) -> bool {
        self.flags & END_STREAM != 0
    }

    pub fn bytes(&self) -> Vec<u8> {
        frame(self.kind, self.flags, self.stream, &self.payload)
    }
}

/// What a case sends, and which requests can be read from it.
#[derive(Debug)]
pub struct Case {
    pub pieces: Vec<Vec<u8>>,
    /// By stream.
    pub readings: Vec<(u32, Reading)>,
    /// Nothing is wrong with it: all of them are to be answered.
    pub sound: bool,
    /// The client leaves without a look at what comes back.
    pub leaves: bool,
}

/// The requests whose streams end. A stream that is opened twice is read both ways.
fn readings(frames: &[Frame]) -> Vec<(u32, Reading)> {
    let mut readings = Vec::new();
    for (i, head) in frames.iter().enumerate() {
        let Some(target) = &head.target else { continue };
        let mut body = Vec::new();
        let of_stream = frames[i + 1..].iter().filter(|f| f.stream == head.stream);
        let ended = head.ends()
            || of_stream
                .filter(|frame| matches!(frame.kind, DATA | HEADERS))
                .any(|frame| {
                    if frame.kind == DATA {
                        body.extend(&frame.payload);
                    }
                    frame.ends()
                });
        if ended {
            let (method, target) = ("POST".to_owned(), target.clone());
            let reading = Reading {
                method,
                target,
                body,
            };
            readings.push((head.stream, reading));
        }
    }
    readings
}

pub struct Generator {
    pub dice: Dice,
    name: u64,
}

impl Generator {
    pub fn new(dice: Dice) -> Self {
        Self { dice, name: 0 }
    }

    fn name(&mut self, kind: &str) -> String {
        self.name += 1;
        format!("h2-{kind}-{}", self.name)
    }

    /// A body that holds a request of HTTP/1, or the frames of another stream.
    fn body(&mut self) -> Vec<u8> {
        let (name, hidden) = (self.name("body"), self.name("hidden"));
        let target = format!("/any?m={hidden}");
        let mut body = name.into_bytes();
        match self.dice.below(3) {
            0 => {}
            1 => body.extend(
                format!("\r\n0\r\n\r\nPOST {target} HTTP/1.1\r\nHost: e\r\n\r\n").into_bytes(),
            ),
            _ => {
                let mut head = head(99, &target);
                head.flags |= END_STREAM;
                body.extend(head.bytes());
            }
        }
        body
    }

    /// The frames of a good request.
    fn request(&mut self, stream: u32) -> Vec<Frame> {
        let target = format!("/any?m={}", self.name("good"));
        let body = self.body();
        let mut frames = vec![head(stream, &target)];
        let at = self.dice.below(body.len() + 1);
        let (one, two) = body.split_at(at);
        frames.push(Frame::new(DATA, 0, stream, one));
        frames.push(Frame::new(DATA, 0, stream, two));
        match self.dice.below(3) {
            0 => frames.push(Frame::new(DATA, END_STREAM, stream, "")),
            1 => {
                let block = fields(&[(b"x-trailer", b"POST /any HTTP/1.1")]);
                let flags = END_HEADERS | END_STREAM;
                frames.push(Frame::new(HEADERS, flags, stream, block));
            }
            _ => frames.last_mut().unwrap().flags |= END_STREAM,
        }
        if self.dice.one_in(3) {
            // The same head in two frames.
            let block = frames[0].payload.split_off(7);
            frames[0].flags &= !END_HEADERS;
            frames.insert(1, Frame::new(CONTINUATION, END_HEADERS, stream, block));
        }
        frames
    }

    /// A frame that has no business here, or one too many.
    fn abuse(&mut self, stream: u32) -> Frame {
        let window = |bytes: u32| bytes.to_be_bytes();
        let setting = |id: u8, value: u32| [&[0, id][..], &value.to_be_bytes()].concat();
        match self.dice.below(18) {
            0 => Frame::new(WINDOW_UPDATE, 0, 0, window(0)),
            1 => Frame::new(WINDOW_UPDATE, 0, stream, window(0)),
            2 => Frame::new(WINDOW_UPDATE, 0, 0, window(0x7fff_ffff)),
            3 => Frame::new(WINDOW_UPDATE, 0, stream, window(0x7fff_ffff)),
            // No room for an answer, and then too much of it.
            4 => Frame::new(SETTINGS, 0, 0, setting(4, 0)),
            5 => Frame::new(SETTINGS, 0, 0, setting(4, 0xffff_ffff)),
            6 => Frame::new(SETTINGS, 0, 0, setting(5, 1)),
            7 => Frame::new(SETTINGS, 0, 0, setting(1, 0)),
            8 => Frame::new(RST_STREAM, 0, stream, [0, 0, 0, 8]),
            9 => Frame::new(RST_STREAM, 0, stream + 100, [0, 0, 0, 8]),
            10 => Frame::new(
                PRIORITY,
                0,
                stream,
                [&stream.to_be_bytes()[..], &[1]].concat(),
            ),
            11 => Frame::new(PUSH_PROMISE, END_HEADERS, stream, [0, 0, 0, 2]),
            12 => Frame::new(PING, 0, 0, [0; 8]),
            13 => Frame::new(GOAWAY, 0, 0, [0; 8]),
            // More padding than there is.
            14 => Frame::new(DATA, 8, stream, [9, b'x']),
            // More than the window lets through.
            15 => Frame::new(DATA, 0, stream, vec![b'x'; 16_384]),
            16 => Frame::new(
                HEADERS,
                END_HEADERS | END_STREAM,
                stream,
                fields(&[(b":path", b"/")]),
            ),
            _ => {
                let (kind, flags) = (self.dice.byte(), self.dice.byte());
                let junk: Vec<u8> = (0..self.dice.below(20)).map(|_| self.dice.byte()).collect();
                // The fields of heads stay as they are, so that their targets are known.
                let kind = if kind == HEADERS { 0xbe } else { kind };
                Frame::new(kind, flags, self.dice.below(8) as u32, junk)
            }
        }
    }

    /// Does something to the frames, and leaves each as it is.
    fn disturb(&mut self, frames: &mut Vec<Frame>) {
        let at = self.dice.below(frames.len());
        let stream = frames[at].stream;
        match self.dice.below(8) {
            0 => drop(frames.remove(at)),
            1 => frames.insert(at, frames[at].clone()),
            2 => {
                let other = self.dice.below(frames.len());
                frames.swap(at, other);
            }
            3 => frames[at].stream = self.dice.below(8) as u32,
            4 => frames[at].flags ^= END_STREAM,
            // Many streams that are given up as soon as they have begun.
            5 => {
                for next in 50..80 {
                    let stream = 2 * next + 1;
                    let target = format!("/any?m={}", self.name("given-up"));
                    frames.push(head(stream, &target));
                    frames.push(Frame::new(RST_STREAM, 0, stream, [0, 0, 0, 8]));
                }
            }
            6 => {
                for _ in 0..10 {
                    let frame = self.abuse(stream);
                    frames.insert(at, frame);
                }
            }
            _ => {
                let frame = self.abuse(stream);
                frames.insert(at, frame);
            }
        }
    }

    pub fn case(&mut self) -> Case {
        let mut queues: Vec<Vec<Frame>> = (0..=self.dice.below(3))
            .map(|nth| self.request(2 * nth as u32 + 1))
            .collect();
        let mut frames = Vec::new();
        // Streams begin in order; from there on their bodies are mixed.
        for queue in &mut queues {
            let open = queue
                .iter()
                .position(|f| f.flags & END_HEADERS != 0)
                .unwrap();
            frames.extend(queue.drain(..=open));
        }
        while queues.iter().any(|queue| !queue.is_empty()) {
            let nth = self.dice.below(queues.len());
            if !queues[nth].is_empty() {
                frames.push(queues[nth].remove(0));
            }
        }
        let sound = self.dice.one_in(3);
        for _ in 0..self.dice.below(4) {
            if !sound && !frames.is_empty() {
                self.disturb(&mut frames);
            }
        }
        let mut wire = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        wire.extend(frame(SETTINGS, 0, 0, b""));
        wire.extend(frames.iter().flat_map(Frame::bytes));
        if !sound && self.dice.one_in(8) {
            let kept = self.dice.below(wire.len());
            wire.truncate(kept);
        }
        Case {
            pieces: self.dice.split(wire),
            readings: readings(&frames),
            sound,
            leaves: !sound && self.dice.one_in(3),
        }
    }
}

fn head(stream: u32, target: &str) -> Frame {
    let block = fields(&[
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":authority", b"edge.test"),
        (b":path", target.as_bytes()),
    ]);
    let mut frame = Frame::new(HEADERS, END_HEADERS, stream, block);
    frame.target = Some(target.to_owned());
    frame
}
