use super::*;

fn judge(fields: &str) -> Result<(), u16> {
    let head = format!("POST /v1/completions HTTP/1.1\r\nHost: e\r\n{fields}\r\n");
    check(head.as_bytes())
        .map(|_| ())
        .map_err(|error| error.status())
}

#[test]
fn ordinary_heads_pass() {
    for fields in [
        "",
        "Content-Length: 4\r\n",
        "Content-Length: 4\r\nContent-Length: 4\r\n",
        "Content-Length: 4, 4\r\n",
        "Content-Length:  0 \r\n",
        "Transfer-Encoding: chunked\r\n",
        "transfer-encoding: Chunked\r\n",
        "X-Tab: a\tb\r\nX-Empty:\r\nX-Latin: \u{e9}\r\n",
    ] {
        assert_eq!(judge(fields), Ok(()), "{fields:?}");
    }
}

#[test]
fn framing_that_can_be_read_in_two_ways_is_refused() {
    for fields in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "Content-Length: 4\r\nContent-Length: 5\r\n",
        "Content-Length: 4, 5\r\n",
        "Content-Length: +4\r\n",
        "Content-Length: -4\r\n",
        "Content-Length: 0x4\r\n",
        "Content-Length: 4a\r\n",
        "Content-Length: \r\n",
        "Content-Length: 18446744073709551616\r\n",
        "Content-Length: 18446744073709551615\r\n",
        "Content-Length: 4\t\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunked\t\r\n",
        "Transfer-Encoding: \x0bchunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding:\r\n chunked\r\n",
    ] {
        assert_eq!(judge(fields), Err(400), "{fields:?}");
    }
}

#[test]
fn malformed_fields_are_refused() {
    for fields in [
        "no colon\r\n",
        ": no name\r\n",
        " folded: x\r\n",
        "X-Nul: a\0b\r\n",
        "X-Bell: \x07\r\n",
        "X-Bare: a\nY: b\r\n",
        "X-Return: a\rb\r\n",
        "X Y: a\r\n",
    ] {
        assert_eq!(judge(fields), Err(400), "{fields:?}");
    }
}

#[test]
fn http_1_0_may_come_without_a_host_and_never_chunked() {
    assert!(check(b"GET / HTTP/1.0\r\n\r\n").is_ok());
    let chunked = b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(check(chunked).unwrap_err().status(), 400);
}

#[test]
fn exactly_one_host_is_asked_of_http_1_1() {
    for head in [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: \r\n\r\n",
    ] {
        assert_eq!(
            check(head.as_bytes()).unwrap_err().status(),
            400,
            "{head:?}"
        );
    }
}

#[test]
fn malformed_request_lines_are_refused() {
    for line in [
        "",
        "GET",
        "GET /",
        "GET / HTTP/2.0",
        "GET  / HTTP/1.1",
        "GET / HTTP/1.1 ",
        "GET /a b HTTP/1.1",
        "G(T / HTTP/1.1",
        "GET /\u{e9} HTTP/1.1",
        "GET /\x01 HTTP/1.1",
        "GET v1/models HTTP/1.1",
        "GET a:443 HTTP/1.1",
        "GET /v1/models#x HTTP/1.1",
        "GET ftp://a/v1/models HTTP/1.1",
    ] {
        let head = format!("{line}\r\nHost: a\r\n\r\n");
        assert_eq!(
            check(head.as_bytes()).unwrap_err().status(),
            400,
            "{line:?}"
        );
    }
}

#[test]
fn tunnels_and_traces_are_refused() {
    for line in ["CONNECT a:443 HTTP/1.1", "TRACE / HTTP/1.1"] {
        let head = format!("{line}\r\nHost: a\r\n\r\n");
        assert_eq!(check(head.as_bytes()).unwrap_err().status(), 405);
    }
}

#[test]
fn sizes_have_limits_with_statuses_of_their_own() {
    let long_line = format!(
        "GET /{} HTTP/1.1\r\nHost: a\r\n\r\n",
        "x".repeat(MAX_REQUEST_LINE)
    );
    assert_eq!(check(long_line.as_bytes()).unwrap_err().status(), 414);
    assert_eq!(judge(&format!("X: {}\r\n", "x".repeat(MAX_HEAD))), Err(431));
    assert_eq!(judge(&format!("X: {}\r\n", "x".repeat(32 * 1024))), Ok(()));
    let fields = |n: usize| "A: b\r\n".repeat(n);
    assert_eq!(judge(&fields(MAX_FIELDS - 1)), Ok(()));
    assert_eq!(judge(&fields(MAX_FIELDS)), Err(431));
}

#[test]
fn a_head_that_cannot_become_acceptable_is_refused_before_it_ends() {
    assert!(check_partial(b"GET / HTTP/1.1\r\nHost: a").is_ok());
    assert!(check_partial(b"GET /").is_ok());
    assert_eq!(check_partial(b"\x16\x03\x01\n").unwrap_err().status(), 400);
    assert_eq!(
        check_partial(b"GET / HTTP/1.1\nHost").unwrap_err().status(),
        400
    );
    assert_eq!(
        check_partial(&vec![b'a'; MAX_REQUEST_LINE + 1])
            .unwrap_err()
            .status(),
        414
    );
    let mut many = b"GET / HTTP/1.1\r\n".to_vec();
    many.resize(MAX_HEAD + 1, b'x');
    assert_eq!(check_partial(&many).unwrap_err().status(), 431);
}

#[test]
fn the_end_of_a_head_is_found_however_it_is_split() {
    let head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nrest";
    let end = head.len() - 4;
    for searched in 0..head.len() - 4 {
        let seen = searched.min(end - 1);
        assert_eq!(find_end(head, seen), Some(end), "{searched}");
    }
    assert_eq!(find_end(&head[..end - 1], 0), None);
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400)) {
        let _ = check(&bytes);
        let _ = check_partial(&bytes);
    }
}

fn parsed(head: &str) -> Result<(RequestHeader, BodyFraming), u16> {
    parse(&Bytes::copy_from_slice(head.as_bytes())).map_err(|error| error.status())
}

#[test]
fn what_a_head_says_is_kept_as_it_was_written() {
    let head = "POST /v1/x?a=%2F&b HTTP/1.1\r\nHost: e\r\nX-One:  a  b\t\r\nx-one:\r\n\
                CONTENT-LENGTH: 7\r\n\r\n";
    let (request, framing) = parsed(head).unwrap();
    assert_eq!(framing, BodyFraming::Length(7));
    assert_eq!(
        (request.method.as_str(), request.version),
        ("POST", Version::HTTP_11)
    );
    assert_eq!(request.raw_path(), b"/v1/x?a=%2F&b");
    let ones: Vec<_> = request.headers.get_all("x-one").iter().collect();
    assert_eq!(ones, ["a  b", ""]);
    let mut wire = Vec::new();
    request.header_to_h1_wire(&mut wire);
    let mut lines: Vec<_> = std::str::from_utf8(&wire).unwrap().lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        ["CONTENT-LENGTH: 7", "Host: e", "X-One: a  b", "x-one: "]
    );
}

#[test]
fn a_host_that_contradicts_the_target_is_refused() {
    for (target, host, expected) in [
        ("/", "e", Ok(())),
        ("http://e/", "e", Ok(())),
        ("http://e:1/", "e", Err(400)),
        ("http://f/", "e", Err(400)),
        ("http://a@e/", "a@e", Err(400)),
        ("/", "a@e", Err(400)),
    ] {
        let head = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(parsed(&head).map(|_| ()), expected, "{target} {host}");
    }
}

proptest::proptest! {
    #[test]
    fn whatever_is_accepted_says_the_same_when_it_is_parsed(
        head in "[A-Z]{1,4} /[!-~]{0,8} HTTP/1\\.[01]\r\n(Host: [a-z@:]{0,4}\r\n)?([A-Za-z-]{1,8}:[ -~\t]{0,8}\r\n){0,3}\r\n"
    ) {
        let bytes = Bytes::from(head);
        let checked = check(&bytes);
        if let Ok((_, framing)) = parse(&bytes) {
            proptest::prop_assert_eq!(checked.ok(), Some(framing));
        }
    }
}
