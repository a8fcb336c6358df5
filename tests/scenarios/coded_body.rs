//! Compressed request bodies: C15.

use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

use crate::support::*;

const TEXT: &[u8] = br#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn coded(coding: &str, body: &[u8]) -> Request {
    req_n().set("Content-Encoding", coding).body(body)
}

fn zlib(text: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn raw_deflate(text: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn br(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    brotli::CompressorWriter::new(&mut out, 4096, 5, 20)
        .write_all(text)
        .unwrap();
    out
}

#[tokio::test(start_paused = true)]
async fn c15_a_compressed_body_is_routed_by_its_content_and_forwarded_untouched() {
    for (coding, body) in [
        ("gzip", gzip(TEXT)),
        ("x-gzip", gzip(TEXT)),
        ("deflate", zlib(TEXT)),
        ("deflate", raw_deflate(TEXT)),
        ("br", br(TEXT)),
        ("zstd", zstd::encode_all(TEXT, 3).unwrap()),
        ("gzip, gzip", gzip(&gzip(TEXT))),
        ("identity", TEXT.to_vec()),
    ] {
        let (other, engine) = (
            ScriptedEngine::start(ok("x")).await,
            ScriptedEngine::start([status(503), ok("y")]).await,
        );
        let edge = edge(RETRIES)
            .engine(&other, &["x"])
            .engine(&engine, &["m"])
            .start()
            .await;
        let response = edge.ask(&coded(coding, &body)).await;
        assert_eq!((response.status, response.text()), (200, "y"), "{coding}");
        let deliveries = engine.deliveries();
        assert_eq!(deliveries.len(), 2);
        for delivery in deliveries {
            assert_eq!(delivery.body, body, "{coding}");
            assert_eq!(delivery.headers.get("content-encoding"), Some(coding));
        }
        assert_eq!(other.seen(), 0);
        engine.assert_clean();
    }
}

#[tokio::test(start_paused = true)]
async fn an_alias_in_a_compressed_body_reaches_the_engine_uncompressed() {
    let engine = ScriptedEngine::start(ok("y")).await;
    let edge = edge("aliases: {alias: m}\n")
        .engines([&engine])
        .start()
        .await;
    let body = gzip(br#"{"model":"alias","n":1}"#);
    assert_eq!(edge.ask(&coded("gzip", &body)).await.status, 200);
    let delivery = &engine.deliveries()[0];
    assert_eq!(delivery.body, br#"{"model":"m","n":1}"#[..]);
    assert!(!delivery.headers.has("content-encoding"));
    engine.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn c15_codings_that_cannot_be_undone_are_refused_and_reach_no_engine() {
    let engine = ScriptedEngine::start(ok("y")).await;
    let edge = edge("max_request_body_bytes: 2000000\n")
        .engines([&engine])
        .start()
        .await;
    let gzipped = gzip(TEXT);
    let bomb = gzip(&vec![b' '; 100_000_000]);
    for (coding, body, expected) in [
        ("lzma", &gzipped[..], 415),
        ("gzip, gzip, gzip, gzip", &gzipped, 415),
        ("gzip", &gzipped[..gzipped.len() - 4], 400),
        ("zstd", &gzipped, 400),
        ("gzip", &bomb, 413),
    ] {
        let response = edge.ask(&coded(coding, body)).await;
        assert_eq!(response.status, expected, "{coding}: {}", response.text());
        assert!(response.json()["error"]["message"].is_string());
    }
    assert!(edge.ask(&coded("lzma", TEXT)).await.text().contains("lzma"));
    assert_eq!(engine.begun(), 0);
}
