//! NAME.properties of a BVGraph: its codes and its sizes.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

use super::bvgraph::{Code, Layout};
use crate::{Error, Result};
use gsplit_store::read_file;

/// Contents of NAME.properties.
pub(super) struct Properties {
    pub layout: Layout,
    pub num_arcs: u64,
    /// References that may follow one another.
    pub max_chain: u64,
}

impl Properties {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = read_file(path).map_err(Error::io(path))?;
        Self::parse(&String::from_utf8_lossy(&text)).map_err(|problem| Error::input(path, problem))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().map(str::trim).filter(|line| !line.starts_with(['#', '!']));
        let pairs: BTreeMap<&str, &str> = lines
            .filter_map(|line| line.split_once('='))
            .map(|(key, value)| (key.trim(), value.trim()))
            .collect();
        let value = |key: &str| pairs.get(key).copied();
        let class = value("graphclass").unwrap_or("BVGraph");
        if !class.ends_with("BVGraph") {
            return Err(format!(
                "graphclass={class}: expected BVGraph; convert it with WebGraph's tools"
            ));
        }
        if let Some(order) = value("endianness").filter(|&order| order != "big") {
            return Err(format!(
                "endianness={order}: expected big; convert it with `webgraph to bvgraph`"
            ));
        }
        let number = |key: &str, default: Option<u64>, range: RangeInclusive<u64>| {
            let wrong = |text| {
                let (least, most) = (range.start(), range.end());
                format!("{key}={text}: expected a number from {least} to {most}")
            };
            match (value(key), default) {
                (None, Some(default)) => Ok(default),
                (None, None) => Err(format!("expected a line {key}=NUMBER")),
                (Some(text), _) => {
                    text.parse().ok().filter(|n| range.contains(n)).ok_or_else(|| wrong(text))
                }
            }
        };
        let zeta = number("zetak", Some(3), 1..=31)? as u32;
        let layout = Layout {
            num_nodes: number("nodes", None, 0..=1 << 40)?,
            window: number("windowsize", Some(7), 0..=1 << 16)? as usize,
            min_interval: number("minintervallength", Some(4), 0..=1 << 32)?,
            codes: codes(value("compressionflags").unwrap_or(""), zeta)?,
        };
        // -1 and Java's largest integer mean that there is no bound.
        let max_chain = value("maxrefcount").and_then(|text| text.parse().ok()).unwrap_or(u64::MAX);
        Ok(Self { layout, num_arcs: number("arcs", None, 0..=u64::MAX)?, max_chain })
    }
}

/// The codes named by flags, e.g. `OUTDEGREES_DELTA|RESIDUALS_GAMMA`, in the order of
/// [`Layout::codes`].
fn codes(flags: &str, zeta: u32) -> Result<[Code; 5], String> {
    let mut codes = [Code::Gamma, Code::Unary, Code::Gamma, Code::Gamma, Code::Zeta(zeta)];
    for flag in flags.split('|').map(str::trim).filter(|flag| !flag.is_empty()) {
        let unknown = || {
            format!(
                "compressionflags={flags}: {flag} is not read, expected UNARY, GAMMA, DELTA or \
                 ZETA codes"
            )
        };
        let (what, code) = flag.rsplit_once('_').ok_or_else(unknown)?;
        let code = match code {
            "UNARY" => Code::Unary,
            "GAMMA" => Code::Gamma,
            "DELTA" => Code::Delta,
            "ZETA" => Code::Zeta(zeta),
            _ => return Err(unknown()),
        };
        match what {
            "OUTDEGREES" => codes[0] = code,
            "REFERENCES" => codes[1] = code,
            "BLOCK_COUNT" => codes[2] = code,
            "BLOCKS" => codes[3] = code,
            "RESIDUALS" => codes[4] = code,
            "OFFSETS" | "INTERVALS" if code == Code::Gamma => {}
            _ => return Err(unknown()),
        }
    }
    Ok(codes)
}
