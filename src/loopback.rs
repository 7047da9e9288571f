//! A trial of multi-process training for `gsplit doctor`: two ranks (threads here) meet at torch's store over loopback and exchange messages.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail, ensure};
use gsplit_kernels::Communicator;
use gsplit_trainer::Meeting;
use serde_json::{Value, json};

/// Bytes per message.
const BYTES: usize = 4 << 20;
/// Number of timed exchanges.
const ROUNDS: usize = 16;
const TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes per second that each of two ranks receives while both send, and the network interface if one is named.
///
/// # Errors
/// One line with the reason why they do not meet, and how to fix it.
pub fn measure() -> Result<Value> {
    let named = std::env::var("GLOO_SOCKET_IFNAME").unwrap_or_default();
    let interface = named.split(',').next().filter(|name| !name.is_empty());
    if let Some(name) = interface.filter(|name| !Path::new("/sys/class/net").join(name).exists()) {
        bail!(
            "GLOO_SOCKET_IFNAME={name}: this host has no such interface: unset it, or choose one that `ip link` shows"
        );
    }
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let rates = thread::scope(|scope| {
        let ranks = [0, 1].map(|rank| scope.spawn(move || rate(rank, port)));
        ranks.map(|rank| rank.join().unwrap_or_else(|_| Err(anyhow!("a rank has panicked"))))
    });
    let remedy = match interface {
        Some(name) => format!("unset GLOO_SOCKET_IFNAME={name}, or choose an interface with an address (`ip address`)"),
        None => "let processes of this host connect to 127.0.0.1 (`ip link` shows lo as UP, the firewall lets it pass)"
            .into(),
    };
    // The remedies of a run are for several hosts.
    let reason = |error: anyhow::Error| {
        let said = error.to_string();
        let end = ["; ", ": see what"].iter().filter_map(|mark| said.find(mark)).min();
        said[..end.unwrap_or(said.len())].to_string()
    };
    let [first, second] = rates.map(|rate| rate.map_err(|error| anyhow!("{}; {remedy}", reason(error))));
    Ok(json!({ "bytes_per_second": first?.min(second?), "interface": interface }))
}

fn rate(rank: usize, port: u16) -> Result<f64> {
    let meeting = Meeting::at("127.0.0.1", port, (rank, 2), "doctor", &BTreeMap::new(), TIMEOUT)?;
    let group = meeting.group("all", meeting.seat()).inspect_err(|_| meeting.linger())?;
    let (send, mut recv) = (vec![rank as u8; BYTES], vec![9; BYTES]);
    let mut lengths = [BYTES; 2];
    lengths[rank] = 0;
    let mut exchange = || group.all_to_all_bytes(&send, &lengths, &mut recv, &lengths);
    exchange()?;
    let since = Instant::now();
    (0..ROUNDS).try_for_each(|_| exchange())?;
    let seconds = since.elapsed().as_secs_f64();
    group.barrier()?;
    ensure!(recv.iter().all(|&byte| usize::from(byte) == 1 - rank), "other bytes came than were sent");
    Ok((ROUNDS * BYTES) as f64 / seconds)
}
