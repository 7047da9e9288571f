//! Logs are read back by independent readers of the tests.

use std::path::Path;

use super::tensorboard::{crc32c, masked_crc};
use gsplit_store::GpuMemory;

use super::{Logs, StepRecord};
use crate::RunConfig;
use crate::report::{EpochReport, Timings, Work};

fn report(epoch: u32) -> EpochReport {
    EpochReport {
        epoch,
        loss: 1.0 / f64::from(epoch),
        gradient_norm: 2.5,
        learning_rate: 0.01,
        loss_scale: None,
        skipped: 0,
        draw_factor: None,
        train: Some(0.5),
        valid: epoch.is_multiple_of(2).then_some(0.75),
        valid_loss: None,
        test: None,
        scores_are_errors: false,
        timings: Timings {
            sample_s: 1.0,
            load_s: 2.0,
            compute_s: 3.0,
            exchange_s: 4.0,
            wait_s: 0.5,
        },
        seconds: 10.0,
        evaluate_s: 0.5,
        memory: Some(GpuMemory { gpu_pool_bytes: 5 << 20, gpu_torch_bytes: 3 << 20 }),
        work: Work {
            edges: 300,
            rows_loaded: 1 << 40,
            rows_cached: 1 << 39,
            rows_from_peers: 1 << 38,
            ..Work::default()
        },
    }
}

#[test]
fn crc32c_has_its_published_values() {
    // RFC 3720, B.4.
    assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    assert_eq!(crc32c(&(0..32).collect::<Vec<u8>>()), 0x46dd_794e);
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
}

#[derive(Debug, PartialEq)]
enum Event {
    Version(String),
    Start(u64),
    Scalars(u64, Vec<(String, f32)>),
}

/// The next varint.
fn varint(data: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = data[0];
        *data = &data[1..];
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return value;
        }
    }
}

/// The fields of a message, numbers as their bytes.
fn fields_of(mut data: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut fields = Vec::new();
    while !data.is_empty() {
        let key = varint(&mut data);
        let length = match key & 7 {
            0 => {
                fields.push((key >> 3, varint(&mut data).to_le_bytes().to_vec()));
                continue;
            }
            1 => 8,
            2 => varint(&mut data) as usize,
            5 => 4,
            other => panic!("wire type {other}"),
        };
        fields.push((key >> 3, data[..length].to_vec()));
        data = &data[length..];
    }
    fields
}

fn parse(event: &[u8]) -> Event {
    let fields = fields_of(event);
    let get = |number: u64| {
        fields.iter().find(|(field, _)| *field == number).map(|(_, content)| content.as_slice())
    };
    let seconds = f64::from_le_bytes(get(1).unwrap().try_into().unwrap());
    assert!(seconds > 1.7e9, "wall time {seconds}");
    let step = u64::from_le_bytes(get(2).unwrap().try_into().unwrap());
    if let Some(version) = get(3) {
        return Event::Version(String::from_utf8(version.to_vec()).unwrap());
    }
    if let Some(session) = get(7) {
        assert_eq!(session, [8, 1]);
        return Event::Start(step);
    }
    let scalars = fields_of(get(5).unwrap()).into_iter().map(|(_, value)| {
        let value = fields_of(&value);
        (
            String::from_utf8(value[0].1.clone()).unwrap(),
            f32::from_le_bytes(value[1].1[..].try_into().unwrap()),
        )
    });
    Event::Scalars(step, scalars.collect())
}

/// The events of all files of `folder`, by file; checks every checksum.
fn events(folder: &Path) -> Vec<Vec<Event>> {
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.is_file());
    paths.sort();
    let read = |path| {
        let bytes = std::fs::read(path).unwrap();
        let (mut rest, mut events) = (&bytes[..], Vec::new());
        while !rest.is_empty() {
            let number = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
            let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
            assert_eq!(number(8), masked_crc(&rest[..8]));
            let data = &rest[12..12 + length];
            assert_eq!(number(12 + length), masked_crc(data));
            events.push(parse(data));
            rest = &rest[16 + length..];
        }
        events
    };
    paths.iter().map(read).collect()
}

#[test]
fn event_files_hold_every_epoch_once() {
    let folder = tempfile::tempdir().unwrap();
    let options = RunConfig { tensorboard: Some(folder.path().join("tb")), ..Default::default() };
    let tb = folder.path().join("tb");
    let history: Vec<EpochReport> = (1..=3).map(report).collect();
    let mut first = Logs::start(&options, &[], 0).unwrap();
    history.iter().for_each(|report| first.write(report).unwrap());
    let found = events(&tb);
    assert_eq!(found[0][..2], [Event::Version("brain.Event:2".into()), Event::Start(1)]);
    let Event::Scalars(2, scalars) = &found[0][3] else { panic!("{found:?}") };
    let value =
        |name: &str| scalars.iter().find(|(found, _)| found == name).map(|(_, value)| *value);
    assert_eq!(value("loss/train"), Some(0.5));
    assert_eq!(value("metric/valid"), Some(0.75));
    assert_eq!(value("metric/test"), None);
    assert_eq!(value("work/rows_loaded"), Some((1u64 << 40) as f32));
    assert_eq!(value("memory/gpu_pool_bytes"), Some((5 << 20) as f32));
    assert_eq!(found[0].len(), 5);

    // Resumed after the second epoch: the third is void, and the earlier ones are not written
    // again.
    let mut second = Logs::start(&options, &history[..2], 20).unwrap();
    second.write(&report(3)).unwrap();
    let found = events(&tb);
    assert_eq!(found[1][1], Event::Start(3));
    assert_eq!(found[1].len(), 3);

    // Resumed with a folder that has no records of the run yet.
    let options =
        RunConfig { tensorboard: Some(folder.path().join("other")), ..Default::default() };
    drop(Logs::start(&options, &history[..2], 20).unwrap());
    let found = events(&folder.path().join("other"));
    assert_eq!((found[0].len(), &found[0][1]), (4, &Event::Start(1)));
}

fn steps(step: u64) -> StepRecord {
    StepRecord {
        step,
        epoch: 1 + (step as u32 - 1) / 10,
        steps: 5,
        loss: 1.0 / step as f64,
        ..Default::default()
    }
}

#[test]
fn a_resumed_log_keeps_the_records_of_the_epochs_that_were_done() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("below/a.jsonl");
    let options = RunConfig { log: Some(path.clone()), log_every: 5, ..Default::default() };
    let read = || std::fs::read_to_string(&path).unwrap();
    let mut first = Logs::start(&options, &[], 0).unwrap();
    let epoch = |logs: &mut Logs, number: u32| {
        let before = 10 * u64::from(number - 1);
        [before + 5, before + 10].iter().for_each(|&step| logs.write_step(&steps(step)).unwrap());
        logs.write(&report(number)).unwrap();
    };
    (1..=2).for_each(|number| epoch(&mut first, number));
    let after_two = read();
    (3..=4).for_each(|number| epoch(&mut first, number));
    // Epoch 4 was logged, but the checkpoint is of epoch 2; step 35 came as the run was killed.
    first.write_step(&steps(35)).unwrap();
    let whole = Logs::start(&options, &[report(1), report(2)], 20).unwrap();
    assert_eq!(read(), after_two);
    drop(whole);
    assert_eq!(after_two.lines().count(), 6);

    // A resume without --log-every keeps the records in the log.
    drop(
        Logs::start(&RunConfig { log_every: 0, ..options.clone() }, &[report(1), report(2)], 20)
            .unwrap(),
    );
    assert_eq!(read(), after_two);

    // An epoch of another run, although of the same number: its mini-batches do not belong to this
    // run.
    let other = EpochReport { loss: 7.0, ..report(1) };
    drop(Logs::start(&options, &[other], 10).unwrap());
    assert_eq!(read().lines().count(), 1);
    drop(Logs::start(&RunConfig { log_every: 0, ..options }, &[], 0).unwrap());
    assert_eq!(read(), "");
}

#[test]
fn event_files_of_mini_batches_have_steps_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let tb = folder.path().join("tb");
    let options = RunConfig { tensorboard: Some(tb.clone()), log_every: 5, ..Default::default() };
    let mut first = Logs::start(&options, &[], 0).unwrap();
    [5, 10].iter().for_each(|&step| first.write_step(&steps(step)).unwrap());
    first.write(&report(1)).unwrap();
    drop(Logs::start(&options, &[report(1)], 10).unwrap());
    // A later run without such records, from the start: the old ones become void.
    drop(Logs::start(&RunConfig { log_every: 0, ..options }, &[], 0).unwrap());
    let found = events(&tb.join("steps"));
    let starts: Vec<&Event> = found.iter().map(|events| &events[1]).collect();
    assert_eq!(starts, [&Event::Start(1), &Event::Start(11), &Event::Start(1)]);
    let Event::Scalars(10, scalars) = &found[0][3] else { panic!("{found:?}") };
    assert!(scalars.contains(&("loss/train".into(), 0.1)));
    assert_eq!(scalars.len(), 11);
}
