//! Ranks that meet, strangers that do not, and what is said when somebody does not come.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use gsplit_kernels::Seat;
use rustix::process::{Resource, getrlimit, setrlimit};

use super::*;

/// A port that is free now.
fn at(secret: &[u8], timeout_ms: u64) -> Rendezvous {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    Rendezvous {
        host: "localhost".into(),
        port,
        secret: secret.to_vec(),
        run: "job 7".into(),
        timeout: Duration::from_millis(timeout_ms),
    }
}

/// Message of rank 0 for `rank`.
fn payload(rank: usize) -> Vec<u8> {
    vec![7 + rank as u8; 392]
}

fn come(rendezvous: &Rendezvous, rank: usize, size: usize) -> Result<(Vec<u8>, Links)> {
    rendezvous.meet(rank, size, || Ok((0..size).map(payload).collect()))
}

/// All `size` ranks at once; what each returned.
fn all(rendezvous: &Rendezvous, size: usize) -> Vec<Result<(Vec<u8>, Links)>> {
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..size).map(|rank| scope.spawn(move || come(rendezvous, rank, size))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn message(result: Result<(Vec<u8>, Links)>) -> String {
    match result {
        Ok(_) => panic!("it met"),
        Err(error) => error.to_string(),
    }
}

fn until(what: &str, found: impl Fn() -> bool) {
    let started = Instant::now();
    while !found() {
        assert!(started.elapsed() < Duration::from_secs(20), "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn every_rank_gets_what_the_first_has_for_it_with_and_without_a_secret() {
    for (size, secret) in [(1, &b"x"[..]), (2, b""), (2, b"a secret"), (5, &[9; 300])] {
        for (rank, result) in all(&at(secret, 20_000), size).into_iter().enumerate() {
            let (bytes, links) = result.unwrap();
            assert_eq!(bytes, payload(rank));
            links.finish();
        }
    }
}

#[test]
fn ranks_that_do_not_come_are_named_to_those_that_did() {
    let rendezvous = at(b"", 700);
    let (first, second) = thread::scope(|scope| {
        let first = scope.spawn(|| message(come(&rendezvous, 0, 4)));
        let second = scope.spawn(|| message(come(&rendezvous, 2, 4)));
        (first.join().unwrap(), second.join().unwrap())
    });
    for told in [first, second] {
        assert!(told.contains("ranks 1, 3 did not come to localhost:") && told.contains("within 0.7 s"), "{told}");
    }
}

#[test]
fn a_first_rank_that_never_listens_is_said() {
    let told = message(come(&at(b"", 300), 1, 2));
    assert!(told.starts_with("rank 1: rank 0 did not answer at localhost:") && told.contains("refused"), "{told}");
    // Another service, which says something else or nothing.
    let rendezvous = at(b"", 300);
    let other = TcpListener::bind(("127.0.0.1", rendezvous.port)).unwrap();
    thread::spawn(move || {
        other.incoming().flatten().for_each(|mut caller| caller.write_all(&[b'H'; 64]).unwrap_or_default())
    });
    let told = message(come(&rendezvous, 1, 2));
    assert!(told.contains("who answers is no gsplit"), "{told}");
}

#[test]
fn whoever_does_not_belong_is_told_and_the_run_goes_on_waiting() {
    let rendezvous = at(b"right", 20_000);
    let as_rank = |change: &dyn Fn(&mut Rendezvous), rank, size| {
        let mut other = rendezvous.clone();
        change(&mut other);
        message(come(&other, rank, size))
    };
    thread::scope(|scope| {
        let first = scope.spawn(|| come(&rendezvous, 0, 3));
        let early = scope.spawn(|| come(&rendezvous, 1, 3));
        let told = as_rank(&|other| other.secret = b"wrong".to_vec(), 2, 3);
        assert!(told.contains("secret") && told.starts_with("rank 2: "), "{told}");
        let told = as_rank(&|other| other.secret = Vec::new(), 2, 3);
        assert!(told.contains("secret"), "{told}");
        let told = as_rank(&|other| other.run = "job 8".into(), 2, 3);
        assert!(told.contains("another run"), "{told}");
        let told = as_rank(&|_| {}, 2, 4);
        assert!(told.contains("one of 3 ranks, this one as one of 4"), "{told}");
        let told = as_rank(&|_| {}, 7, 3);
        assert!(told.contains("ranks 0 to 2"), "{told}");
        // The seat of rank 1 is taken as soon as it has come.
        thread::sleep(Duration::from_millis(300));
        let told = as_rank(&|_| {}, 1, 3);
        assert!(told.contains("rank 1 has come already"), "{told}");
        assert_eq!(come(&rendezvous, 2, 3).unwrap().0, payload(2));
        assert_eq!(early.join().unwrap().unwrap().0, payload(1));
        assert_eq!(first.join().unwrap().unwrap().0, payload(0));
    });
}

#[test]
fn garbage_and_silence_hold_up_nobody() {
    let rendezvous = at(b"right", 20_000);
    let call = || {
        until("nobody listens", || TcpStream::connect(("127.0.0.1", rendezvous.port)).is_ok());
        TcpStream::connect(("127.0.0.1", rendezvous.port)).unwrap()
    };
    let started = Instant::now();
    thread::scope(|scope| {
        let first = scope.spawn(|| come(&rendezvous, 0, 2));
        let silent: Vec<TcpStream> = (0..8).map(|_| call()).collect();
        for garbage in [
            &[0u8; 200][..],
            &[255; 112],
            b"GET / HTTP/1.1\r\n\r\n",
            b"gsplit2\n",
            &[b"gsplit2\n" as &[u8], &[255; 500]].concat(),
        ] {
            let mut caller = call();
            // The far side may have closed it by now.
            let _ = caller.write_all(garbage);
            let _ = caller.shutdown(std::net::Shutdown::Write);
            let _ = caller.read_to_end(&mut Vec::new());
        }
        assert_eq!(come(&rendezvous, 1, 2).unwrap().0, payload(1));
        assert_eq!(first.join().unwrap().unwrap().0, payload(0));
        assert!(started.elapsed() < HANDSHAKE, "the silent ones were not waited for");
        drop(silent);
    });
}

/// Keeps `connections` to `port` open, says nothing, and calls again where it is dropped, until `done`; returns how often it was.
fn say_nothing(port: u16, connections: usize, done: &AtomicBool) -> usize {
    let call = || -> Option<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_nonblocking(true).ok().map(|()| stream)
    };
    let mut held: Vec<Option<TcpStream>> = (0..connections).map(|_| call()).collect();
    let mut dropped = 0;
    while !done.load(Relaxed) {
        for place in &mut held {
            let is_open = place.as_mut().is_some_and(|stream| match stream.read(&mut [0; 64]) {
                Ok(count) => count > 0,
                Err(error) => error.kind() == ErrorKind::WouldBlock,
            });
            if !is_open {
                (*place, dropped) = (call(), dropped + 1);
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
    dropped
}

#[test]
fn five_hundred_silent_callers_do_not_delay_a_start() {
    let (rendezvous, done) = (at(b"right", 60_000), AtomicBool::new(false));
    // Both ends of all of them are here, and other tests run too.
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.current.map(|now| now.max(files.maximum.unwrap_or(4096).min(4096)));
    setrlimit(Resource::Nofile, files).unwrap();
    thread::scope(|scope| {
        let first = scope.spawn(|| come(&rendezvous, 0, 4));
        until("nobody listens", || TcpStream::connect(("127.0.0.1", rendezvous.port)).is_ok());
        let silent: Vec<_> = (0..5).map(|_| scope.spawn(|| say_nothing(rendezvous.port, 100, &done))).collect();
        // Until all places are taken, and those who had them have been dropped and come again.
        thread::sleep(Duration::from_millis(1500));
        let started = Instant::now();
        for rank in [3, 1, 2] {
            let rendezvous = &rendezvous;
            scope.spawn(move || assert_eq!(come(rendezvous, rank, 4).unwrap().0, payload(rank)));
        }
        assert_eq!(first.join().unwrap().unwrap().0, payload(0));
        let took = started.elapsed();
        done.store(true, Relaxed);
        let dropped: usize = silent.into_iter().map(|silent| silent.join().unwrap()).sum();
        assert!(dropped > 500, "all of them were dropped: {dropped}");
        // A second, and what a machine with other work takes. Each silent caller used to have five.
        assert!(took < Duration::from_secs(3), "{took:?}");
    });
}

#[test]
fn a_rank_that_is_dropped_for_others_calls_again() {
    let rendezvous = at(b"", 20_000);
    let listener = TcpListener::bind(("127.0.0.1", rendezvous.port)).unwrap();
    thread::scope(|scope| {
        let second = scope.spawn(|| come(&rendezvous, 1, 2));
        // Before it is asked, and after it has answered.
        drop(listener.accept().unwrap());
        let (stream, _) = listener.accept().unwrap();
        wire::send_challenge(&stream).unwrap();
        (&stream).read_exact(&mut [0; wire::HELLO]).unwrap();
        drop((stream, listener));
        let first = scope.spawn(|| come(&rendezvous, 0, 2));
        assert_eq!(second.join().unwrap().unwrap().0, payload(1));
        first.join().unwrap().unwrap();
    });
}

#[test]
fn strangers_say_anything_and_prove_nothing() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/rendezvous");
    let inputs = std::fs::read_dir(corpus).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap());
    let mut understood = 0;
    for bytes in inputs {
        let text: String = bytes.iter().map(|&byte| char::from(byte)).collect();
        let mut parts = text.split("\n----8<----\n").map(|part| part.chars().map(|c| c as u8).collect::<Vec<u8>>());
        let parts = [(); 3].map(|()| parts.next().unwrap_or_default());
        understood += usize::from(strangers::run(parts.each_ref().map(Vec::as_slice)));
        // Cut anywhere, and with another byte anywhere.
        for at in 0..parts.iter().map(Vec::len).max().unwrap_or(0) {
            let cut = parts.each_ref().map(|part| &part[..at.min(part.len())]);
            strangers::run(cut);
            let changed = parts.clone().map(|mut part| {
                part.get_mut(at).into_iter().for_each(|byte| *byte ^= 0x81);
                part
            });
            strangers::run(changed.each_ref().map(Vec::as_slice));
        }
    }
    assert!(understood >= 4);
}

#[test]
fn an_answer_that_is_too_long_is_refused() {
    let rendezvous = at(b"", 1000);
    let listener = TcpListener::bind(("127.0.0.1", rendezvous.port)).unwrap();
    let fake = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        wire::send_challenge(&stream).unwrap();
        let mut heard = [0; 112];
        (&stream).read_exact(&mut heard).unwrap();
        (&stream).write_all(&[1, 255, 255]).unwrap();
        let _ = (&stream).read(&mut [0]);
    });
    let told = message(come(&rendezvous, 1, 2));
    assert!(told.contains("65535 bytes"), "{told}");
    fake.join().unwrap();
}

#[test]
fn a_port_that_is_taken_is_said() {
    let rendezvous = at(b"", 500);
    let _taken = TcpListener::bind(("127.0.0.1", rendezvous.port)).unwrap();
    let told = message(come(&rendezvous, 0, 2));
    assert!(told.contains("cannot listen") && told.contains("--rendezvous HOST:PORT"), "{told}");
}

#[test]
fn the_secret_is_never_shown() {
    let shown = format!("{:?}", at(b"sesame", 1));
    assert!(shown.contains("localhost") && !shown.contains("sesame") && !shown.contains("115"), "{shown}");
}

#[test]
fn every_rank_is_connected_to_every_other() {
    let links: Vec<Links> = all(&at(b"s", 20_000), 5).into_iter().map(|result| result.unwrap().1).collect();
    let gathered = thread::scope(|scope| {
        let gather = |(rank, links): (usize, &Links)| {
            let comm = links.group(3, Seat::among_all(rank, 5), Some(Duration::from_secs(20)));
            gsplit_kernels::all_gather_v(&comm, &vec![rank as u8; rank])
        };
        let ranks: Vec<_> = links.iter().enumerate().map(|of| scope.spawn(move || gather(of))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(gathered, vec![Vec::from_iter((0..5).map(|rank| vec![rank as u8; rank])); 5]);
}

#[test]
fn addresses_of_both_kinds_are_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let told = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let hosts = [None, Some("10.1.2.3"), Some("fe80::7")].map(|host| host.map(|host| host.parse().unwrap()));
    let addresses: Vec<Address> = (700..).zip(hosts).map(|(port, host)| Address { host, port }).collect();
    write_addresses(&listener.accept().unwrap().0, &addresses).unwrap();
    assert_eq!(read_addresses(&told, 3, after(HANDSHAKE)).unwrap(), addresses);
}
