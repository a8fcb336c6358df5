//! One request over a connection of its own.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longer than anything takes, so that what hangs fails the test.
const PATIENCE: Duration = Duration::from_secs(120);

/// Sends a request with a JSON body; the status and the body of its answer.
pub(crate) fn send(
    server: SocketAddr,
    method: &str,
    path: &str,
    fields: &str,
    body: &str,
) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {server}\r\nContent-Type: application/json\r\n\
         Connection: close\r\n{fields}Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut answer = Vec::new();
    let mut piece = [0; 8 * 1024];
    // Its length is told; not everybody closes.
    loop {
        if let Some(whole) = whole(&answer) {
            return Ok(whole);
        }
        match stream.read(&mut piece)? {
            0 => return Err(io::Error::other("the connection ended in the middle")),
            count => answer.extend_from_slice(&piece[..count]),
        }
    }
}

/// The status and the body of an answer, once it is whole.
fn whole(answer: &[u8]) -> Option<(u16, String)> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&answer[..end])
        .ok()?
        .to_ascii_lowercase();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length = head.split("\ncontent-length:").nth(1)?;
    let length: usize = length.split('\r').next()?.trim().parse().ok()?;
    let body = answer.get(end..end + length)?;
    Some((status, String::from_utf8_lossy(body).into_owned()))
}
