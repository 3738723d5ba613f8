//! Content codings as other programs do them.

use std::io::{Read, Write};

pub(crate) const ALL: [&str; 5] = ["gzip", "deflate", "deflate, bare", "br", "zstd"];

/// What a message says of it.
pub(crate) fn header(coding: &str) -> &str {
    coding.split(',').next().unwrap()
}

pub(crate) fn encode(coding: &str, text: &[u8]) -> Vec<u8> {
    let level = flate2::Compression::default();
    let mut out = Vec::new();
    match coding {
        "gzip" => {
            let mut writer = flate2::write::GzEncoder::new(&mut out, level);
            writer.write_all(text).unwrap();
            writer.finish().unwrap();
        }
        "deflate" => {
            let mut writer = flate2::write::ZlibEncoder::new(&mut out, level);
            writer.write_all(text).unwrap();
            writer.finish().unwrap();
        }
        "deflate, bare" => {
            let mut writer = flate2::write::DeflateEncoder::new(&mut out, level);
            writer.write_all(text).unwrap();
            writer.finish().unwrap();
        }
        "br" => {
            let mut writer = brotli::CompressorWriter::new(&mut out, 4096, 5, 20);
            writer.write_all(text).unwrap();
        }
        "zstd" => out = zstd::encode_all(text, 3).unwrap(),
        other => panic!("{other}"),
    }
    out
}

pub(crate) fn decode(coding: &str, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut reader: Box<dyn Read> = match coding {
        "gzip" => Box::new(flate2::read::GzDecoder::new(bytes)),
        "deflate" => Box::new(flate2::read::ZlibDecoder::new(bytes)),
        "deflate, bare" => Box::new(flate2::read::DeflateDecoder::new(bytes)),
        "br" => Box::new(brotli::Decompressor::new(bytes, 4096)),
        "zstd" => Box::new(zstd::stream::read::Decoder::new(bytes).unwrap()),
        other => panic!("{other}"),
    };
    reader.read_to_end(&mut out).unwrap();
    out
}
