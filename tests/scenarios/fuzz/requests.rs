//! Requests of HTTP/1: good ones, nearly good ones, and what hides in them.

use super::Dice;
use super::reading::Reading;
use crate::support::*;

/// Requests for this take any body, so that whole requests can be in one.
pub const ANY_BODY: &str =
    "extra_routes: [{method: POST, path: /any, model: any, resend: always}]\n";

const SPICE: [&[u8]; 18] = [
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"\t",
    b":",
    b",",
    b";",
    b"\r\n\r\n",
    b"0\r\n\r\n",
    b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: identity\r\n",
    b"\r\n ",
    b"\x80",
    b"\x0b",
    b"-1",
];

/// What a case sends, piece by piece, and how it ends.
#[derive(Debug)]
pub struct Case {
    pub pieces: Vec<Vec<u8>>,
    /// Nothing is wrong with it: these are its requests, and all are to be answered.
    pub sound: Option<Vec<Reading>>,
    pub end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Read,
    HalfClose,
    Close,
    Reset,
}

/// Makes cases; no two of its requests are the same.
pub struct Generator {
    pub dice: Dice,
    name: u64,
    /// Tells the requests of one generator from those of others.
    origin: &'static str,
}

impl Generator {
    pub fn new(dice: Dice, origin: &'static str) -> Self {
        let name = 0;
        Self { dice, name, origin }
    }

    fn name(&mut self, kind: &str) -> String {
        self.name += 1;
        format!("{}-{kind}-{}", self.origin, self.name)
    }

    /// A request that must never be read as one where it is hidden.
    fn hidden(&mut self) -> String {
        let name = self.name("hidden");
        let body = [r#"{"model":"m"}"#, ""][self.dice.below(2)];
        let length = body.len();
        format!(
            "POST /any?m={name} HTTP/1.1\r\nHost: edge.test\r\nContent-Length: {length}\r\n\r\n{body}"
        )
    }

    /// A body of the route that takes any.
    fn any_body(&mut self) -> Vec<u8> {
        let name = self.name("body");
        let before = self
            .dice
            .pick(&["", "0\r\n\r\n", "\r\n\r\n", "}\r\n", "5\r\n"]);
        let hidden = if self.dice.one_in(4) {
            String::new()
        } else {
            self.hidden()
        };
        format!("{name} {before}{hidden}").into_bytes()
    }

    /// A request that is to be answered.
    fn good(&mut self) -> (Request, Reading) {
        let name = self.name("good");
        let (path, body) = if self.dice.one_in(2) {
            ("/any", self.any_body())
        } else {
            let text = format!(r#"{{"model":"m","messages":[],"user":"{name}"}}"#);
            ("/v1/chat/completions", text.into_bytes())
        };
        let target = format!("{path}?m={name}");
        let whole = self.dice.one_in(6);
        let given = if whole {
            format!("http://edge.test{target}")
        } else {
            target.clone()
        };
        let request = Request::new("POST", &given).body(&body);
        let reading = Reading {
            method: "POST".into(),
            target,
            body,
        };
        (request, reading)
    }

    /// A request that is good, or nearly so.
    fn nearly_good(&mut self) -> Request {
        if self.dice.one_in(2) {
            return self.good().0;
        }
        let bodies: [&[u8]; 6] = [
            br#"{"model":"nobody"}"#,
            br#"{"model":1}"#,
            br#"{"model":"m""#,
            b"{}",
            b"",
            b"\xff\0",
        ];
        let paths = [
            "/v1/completions?x=%2F&m",
            "/v1/models?m",
            "/health?m",
            "/sleep?m",
            "*",
        ];
        let methods = ["POST", "POST", "GET", "HEAD", "OPTIONS", "PUT"];
        let target = match self.dice.pick(&paths) {
            "*" => "*".to_owned(),
            path => format!("{path}={}", self.name("odd")),
        };
        let body = self.dice.pick(&bodies);
        Request::new(self.dice.pick(&methods), &target).body(body)
    }

    /// The bytes of a request whose body comes in one framing or the other. A request that hides
    /// beside the body has these line ends.
    fn framed(&mut self, request: Request, line_end: &str) -> Vec<u8> {
        if !self.dice.one_in(2) {
            return request.to_bytes();
        }
        let sizes: Vec<usize> = (0..3).map(|_| 1 + self.dice.below(40)).collect();
        let mut bytes = request.chunked(sizes).to_bytes();
        if self.dice.one_in(3) {
            let head = bytes.windows(4).position(|end| end == b"\r\n\r\n").unwrap();
            let size = bytes[head + 4..].windows(2).position(|end| end == b"\r\n");
            let end = head + 4 + size.unwrap();
            let extension = if line_end == " " { " y\r\n" } else { line_end };
            bytes.splice(end..end + 2, format!(";x={extension}").into_bytes());
        }
        if self.dice.one_in(2) && bytes.ends_with(b"\r\n0\r\n\r\n") {
            let mut hidden = || self.hidden().replace("\r\n", line_end);
            let (extension, trailer) = (hidden(), hidden());
            bytes.truncate(bytes.len() - 5);
            bytes.extend(format!("0;x={extension}\r\nX-Trailer: {trailer}\r\n\r\n").bytes());
        }
        bytes
    }

    /// A request as an attacker would have it.
    fn bad(&mut self) -> Vec<u8> {
        let request = self.nearly_good();
        let line_end = self.dice.pick(&[" ", "\r\n", "\n", "\r"]);
        let mut bytes = self.framed(request, line_end);
        for _ in 0..self.dice.below(3) {
            let field = self.bad_field();
            let head = bytes.windows(2).position(|end| end == b"\r\n");
            let at = head.map_or(0, |end| end + 2);
            bytes.splice(at..at, field);
        }
        if self.dice.one_in(2) {
            self.dice.mutate(&mut bytes, &SPICE);
        }
        if self.dice.one_in(3) {
            bytes.extend(self.hidden().into_bytes());
        }
        bytes
    }

    /// A field that changes where a request ends, or where its answer does, for some readers.
    fn bad_field(&mut self) -> Vec<u8> {
        if self.dice.one_in(8) {
            let hidden = self.hidden();
            return format!("X-Hidden: a\r\n\r\n{hidden}\r\n").into_bytes();
        }
        let field = self.dice.pick(&[
            "Connection: close",
            "Connection: keep-alive, X-Case",
            "Expect: 100-continue",
            "Upgrade: websocket",
            "Content-Length: 3",
            "Content-Length: 0",
            "Content-Length: 500",
            "Transfer-Encoding: chunked",
            "Transfer-Encoding: identity",
            "Transfer-Encoding: \x0bchunked",
            "Transfer-Encoding : chunked",
            "Host: other",
            "X-Request-Id: \u{e9}",
            "TE: trailers",
        ]);
        format!("{field}\r\n").into_bytes()
    }

    fn sound(&mut self) -> (Vec<u8>, Vec<Reading>) {
        let (mut bytes, mut readings) = (Vec::new(), Vec::new());
        for _ in 0..=self.dice.below(3) {
            let (request, reading) = self.good();
            bytes.extend(self.framed(request, " "));
            readings.push(reading);
        }
        (bytes, readings)
    }

    pub fn case(&mut self) -> Case {
        if self.dice.one_in(3) {
            let (bytes, readings) = self.sound();
            return Case {
                pieces: self.dice.split(bytes),
                sound: Some(readings),
                end: End::Read,
            };
        }
        let mut bytes = Vec::new();
        for _ in 0..=self.dice.below(3) {
            bytes.extend(self.bad());
        }
        if self.dice.one_in(10) {
            bytes = (0..self.dice.below(200))
                .map(|_| self.dice.byte())
                .collect();
        }
        if self.dice.one_in(6) {
            let kept = self.dice.below(bytes.len() + 1);
            bytes.truncate(kept);
        }
        let ends = [End::Read, End::Read, End::HalfClose, End::Close, End::Reset];
        Case {
            pieces: self.dice.split(bytes),
            sound: None,
            end: ends[self.dice.below(5)],
        }
    }
}
