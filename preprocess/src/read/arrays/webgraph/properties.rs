//! NAME.properties of a BVGraph: its codes and its sizes.

use std::collections::BTreeMap;
use std::path::Path;

use super::bvgraph::{Code, Layout};
use crate::{Error, Result};
use gsplit_store::read_file;

/// Longest properties accepted.
const MAX_PROPERTIES: u64 = 1 << 20;

/// Contents of NAME.properties.
pub(super) struct Properties {
    pub layout: Layout,
    pub num_arcs: u64,
    /// References that may follow one another.
    pub max_chain: u64,
}

impl Properties {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::metadata(path).map_err(Error::io(path))?.len();
        if bytes > MAX_PROPERTIES {
            return Err(Error::input(
                path,
                format!("{bytes} bytes: expected properties of BVGraph"),
            ));
        }
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
        let number = |key: &str, default: Option<u64>| match (value(key), default) {
            (None, Some(default)) => Ok(default),
            (None, None) => Err(format!("expected a line {key}=NUMBER")),
            (Some(text), _) => text.parse().map_err(|_| format!("{key}={text}: expected a number")),
        };
        let zeta = number("zetak", Some(3))?;
        let window = number("windowsize", Some(7))?;
        if !(1..=31).contains(&zeta) || window > 1 << 16 {
            return Err(format!(
                "zetak={zeta}, windowsize={window}: expected 1 to 31, and up to 65536"
            ));
        }
        let codes = codes(value("compressionflags").unwrap_or(""), zeta as u32)?;
        let min_interval = number("minintervallength", Some(4))?;
        let layout = Layout {
            num_nodes: number("nodes", None)?,
            window: window as usize,
            min_interval,
            codes,
        };
        if layout.num_nodes > u64::from(u32::MAX) * 256 || min_interval > u64::from(u32::MAX) {
            return Err(format!(
                "nodes={}, minintervallength={min_interval}: implausible",
                layout.num_nodes
            ));
        }
        // -1 and Java's largest integer mean that there is no bound.
        let max_chain = value("maxrefcount").and_then(|text| text.parse().ok()).unwrap_or(u64::MAX);
        Ok(Self { layout, num_arcs: number("arcs", None)?, max_chain })
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
