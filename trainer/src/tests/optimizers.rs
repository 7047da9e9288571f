//! Optimizers against torch's own, and learning rates against torch's recursions.

use gsplit_kernels::{Communicator, Draws, Solo, Stream, StreamKey};
use tch::nn::{self, OptimizerConfig as _, VarStore};
use tch::{Device, Tensor};

use super::fixture::{assert_refused, changed, config, on_ranks};
use crate::config::{
    Betas, Config, Dtype, ModelKind, OptimizerConfig, OptimizerKind, Parallelism, ScheduleConfig,
    ScheduleKind,
};
use crate::model::{Model, Parameters};
use crate::operator::{Place, to_rows};
use crate::optimizer::Optimizer;

const STEPS: u32 = 12;

fn with(optimizer: OptimizerConfig) -> Config {
    changed(&config(ModelKind::Sage, Parallelism::Single, 1), |config| {
        config.run.optimizer = optimizer
    })
}

/// A gradient that changes in size and sign from step to step.
fn gradient(step: u32, index: u32, shape: &[i64]) -> Tensor {
    let mut draws = Draws::new(&StreamKey { step, ..StreamKey::new(7, Stream::Init) }, index);
    let count: i64 = shape.iter().product();
    let values: Vec<f32> =
        (0..count).map(|_| (draws.unit_f32() - 0.4) * (1.0 + step as f32)).collect();
    Tensor::from_slice(&values).view(shape)
}

/// Gives the parameters the gradients of `step`, times `factor`.
fn give_gradients(parameters: &Parameters, step: u32, factor: f64) {
    for (index, (_, tensor)) in parameters.iter().enumerate() {
        (tensor * gradient(step, index as u32, &tensor.size()) * factor)
            .sum(tch::Kind::Float)
            .backward();
    }
}

fn values(parameters: &Parameters) -> Vec<f32> {
    parameters.iter().flat_map(|(_, tensor)| to_rows(tensor).unwrap()).collect()
}

/// The parameters after some updates by gsplit and by torch.
fn ours_and_torchs(
    config: &Config,
    build: impl Fn(&VarStore) -> nn::Optimizer,
) -> (Vec<f32>, Vec<f32>) {
    let model = Model::new(config, 6, 4);
    let parameters = model.parameters();
    let store = VarStore::new(Device::Cpu);
    let path = store.root();
    let copies: Vec<Tensor> = parameters
        .iter()
        .enumerate()
        .map(|(index, (_, tensor))| path.var_copy(&format!("p{index}"), &tensor.detach()))
        .collect();
    let mut theirs = build(&store);
    let mut ours = Optimizer::new(parameters, config, 10).unwrap();
    for step in 0..STEPS {
        give_gradients(parameters, step, 1.0);
        let update = ours.update(parameters, &Solo).unwrap();
        assert!(update.gradient_norm.on_host().unwrap() > 0.0);
        theirs.zero_grad();
        for (index, copy) in copies.iter().enumerate() {
            (copy * gradient(step, index as u32, &copy.size())).sum(tch::Kind::Float).backward();
        }
        if let Some(most) = config.run.optimizer.clip_norm {
            theirs.clip_grad_norm(most);
        }
        theirs.step();
    }
    (values(parameters), copies.iter().flat_map(|copy| to_rows(copy).unwrap()).collect())
}

/// f(w) = w² / 2 − c(t) w for each value w of the parameters: its gradient is w − c(t).
#[test]
fn oracle_stale_updates_follow_their_recursion() {
    let (rate, epochs, steps) = (0.1f32, 2, 7);
    let pull = |t: usize, index: usize| (t as f32 * 0.7 + index as f32).sin();
    for staleness in [0, 1, 3, 9] {
        let sgd = OptimizerConfig {
            kind: OptimizerKind::Sgd,
            momentum: Some(0.0),
            lr: rate.into(),
            ..Default::default()
        };
        let config = with(OptimizerConfig { staleness, ..sgd });
        let model = Model::new(&config, 2, 2);
        let parameters = model.parameters();
        let mut optimizer = Optimizer::new(parameters, &config, steps as u64).unwrap();
        let mut expected = values(parameters);
        for epoch in 0..epochs {
            // w(t) and the gradient there, for each mini-batch of the epoch.
            let mut seen: Vec<Vec<f32>> = Vec::new();
            for t in 0..steps + staleness {
                if t < steps {
                    let pulls: Vec<f32> =
                        (0..expected.len()).map(|index| pull(epoch * steps + t, index)).collect();
                    seen.push(expected.iter().zip(&pulls).map(|(w, c)| w - c).collect());
                    let mut start = 0;
                    for (_, tensor) in parameters.iter() {
                        let end = start + tensor.numel();
                        let pulls = Tensor::from_slice(&pulls[start..end]).view_as(tensor);
                        (tensor * (tensor * 0.5 - pulls)).sum(tch::Kind::Float).backward();
                        start = end;
                    }
                    optimizer.update(parameters, &Solo).unwrap();
                }
                if let Some(gradient) = t.checked_sub(staleness).and_then(|before| seen.get(before))
                {
                    expected
                        .iter_mut()
                        .zip(gradient)
                        .for_each(|(w, gradient)| *w -= rate * gradient);
                }
            }
            optimizer.catch_up(parameters).unwrap();
            assert_eq!(optimizer.steps as usize, (epoch + 1) * steps);
            let off = values(parameters)
                .iter()
                .zip(&expected)
                .map(|(w, e)| (w - e).abs())
                .fold(0.0, f32::max);
            assert!(off < 1e-5, "staleness {staleness}, epoch {epoch}: off by {off}");
        }
    }
}

#[test]
fn oracle_updates_are_those_of_torch() {
    let base = OptimizerConfig { lr: 0.02, ..Default::default() };
    let adam = |wd| nn::Adam { beta1: 0.8, beta2: 0.99, wd, eps: 1e-6, amsgrad: false };
    let sgd = |momentum, wd, nesterov| nn::Sgd { momentum, dampening: 0.0, wd, nesterov };
    let chosen = OptimizerConfig {
        betas: Some(Betas([0.8, 0.99])),
        adam_epsilon: Some(1e-6),
        ..base.clone()
    };
    let adamw = OptimizerConfig { kind: OptimizerKind::AdamW, weight_decay: 0.1, ..chosen.clone() };
    let sgd_of = |momentum| OptimizerConfig { kind: OptimizerKind::Sgd, momentum, ..base.clone() };
    let clipped = OptimizerConfig { clip_norm: Some(3.0), weight_decay: 0.05, ..sgd_of(Some(0.7)) };
    type Build = Box<dyn Fn(&VarStore) -> nn::Optimizer>;
    let cases: Vec<(OptimizerConfig, Build)> = vec![
        (base.clone(), Box::new(|store| nn::Adam::default().build(store, 0.02).unwrap())),
        (chosen.clone(), Box::new(move |store| adam(0.0).build(store, 0.02).unwrap())),
        (
            OptimizerConfig { weight_decay: 0.1, ..chosen },
            Box::new(move |store| adam(0.1).build(store, 0.02).unwrap()),
        ),
        (
            adamw,
            Box::new(|store| {
                let adamw =
                    nn::AdamW { beta1: 0.8, beta2: 0.99, wd: 0.1, eps: 1e-6, amsgrad: false };
                adamw.build(store, 0.02).unwrap()
            }),
        ),
        (
            sgd_of(Some(0.0)),
            Box::new(move |store| sgd(0.0, 0.0, false).build(store, 0.02).unwrap()),
        ),
        (sgd_of(None), Box::new(move |store| sgd(0.9, 0.0, false).build(store, 0.02).unwrap())),
        (
            OptimizerConfig { nesterov: true, weight_decay: 0.05, ..sgd_of(None) },
            Box::new(move |store| sgd(0.9, 0.05, true).build(store, 0.02).unwrap()),
        ),
        (clipped, Box::new(move |store| sgd(0.7, 0.05, false).build(store, 0.02).unwrap())),
    ];
    for (optimizer, build) in cases {
        let config = with(optimizer);
        config.check().unwrap();
        let start = values(Model::new(&config, 6, 4).parameters());
        let (ours, theirs) = ours_and_torchs(&config, build);
        let moved = start.iter().zip(&theirs).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
        let apart = ours.iter().zip(&theirs).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
        assert!(
            moved > 0.05 && apart <= 2e-6 * moved.max(1.0),
            "{:?}: {apart} of {moved}",
            config.run.optimizer
        );
    }
}

#[test]
fn updates_clip_the_sum_over_all_ranks() {
    let config = with(OptimizerConfig {
        clip_norm: Some(0.5),
        kind: OptimizerKind::Sgd,
        lr: 0.1,
        ..Default::default()
    });
    let train = |comm: &dyn Communicator| {
        let model = Model::new(&config, 6, 4);
        let mut optimizer = Optimizer::new(model.parameters(), &config, 10).unwrap();
        let mut norms = Vec::new();
        for step in 0..4 {
            // The last rank of several has nothing to compute.
            let sharing = (comm.size() - 1).max(1);
            if comm.rank() < sharing {
                give_gradients(model.parameters(), step, 1.0 / sharing as f64);
            }
            norms.push(
                optimizer
                    .update(model.parameters(), comm)
                    .unwrap()
                    .gradient_norm
                    .on_host()
                    .unwrap(),
            );
        }
        (norms, values(model.parameters()))
    };
    let (norms, alone) = train(&Solo);
    assert!(norms.iter().all(|&norm| norm > 0.5));
    for ranks in [2, 3, 5] {
        let results = on_ranks(ranks, train);
        for (found, together) in &results {
            assert_eq!(
                (found, together),
                (&results[0].0, &results[0].1),
                "every rank has the same bits"
            );
            assert!(
                norms.iter().zip(found).all(|(a, b)| (a - b).abs() <= 1e-5 * a),
                "{norms:?} {found:?}"
            );
            assert!(
                alone.iter().zip(together).all(|(a, b)| (a - b).abs() <= 1e-6),
                "{ranks} ranks"
            );
        }
    }
}

/// The learning rates of `steps` updates, with evaluations of the `valid` metric before them.
fn rates(schedule: ScheduleConfig, steps: u64, valid: &[f64]) -> Vec<f64> {
    let config = changed(&with(OptimizerConfig { lr: 0.1, ..Default::default() }), |config| {
        (config.run.schedule, config.run.epochs) = (schedule, 5);
    });
    config.check().unwrap();
    let model = Model::new(&config, 6, 4);
    let mut optimizer = Optimizer::new(model.parameters(), &config, 4).unwrap();
    optimizer.follow(valid.iter().copied());
    (0..steps)
        .map(|step| {
            give_gradients(model.parameters(), step as u32, 1.0);
            optimizer.update(model.parameters(), &Solo).unwrap().learning_rate
        })
        .collect()
}

fn assert_close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    assert!(
        found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12),
        "{found:?}, expected {expected:?}"
    );
}

#[test]
fn learning_rates_follow_their_schedules() {
    let of = |kind| ScheduleConfig { kind, ..Default::default() };
    assert_close(&rates(of(ScheduleKind::Constant), 3, &[]), &[0.1; 3]);
    let warm = ScheduleConfig { warmup_steps: 4, ..of(ScheduleKind::Constant) };
    assert_close(&rates(warm, 6, &[]), &[0.025, 0.05, 0.075, 0.1, 0.1, 0.1]);
    let linear =
        ScheduleConfig { decay_epochs: Some(1), min_lr: Some(0.02), ..of(ScheduleKind::Linear) };
    assert_close(&rates(linear, 6, &[]), &[0.1, 0.08, 0.06, 0.04, 0.02, 0.02]);

    // torch's CosineAnnealingLR computes each rate from the one before.
    let (total, least) = (5.0 * 4.0 - 2.0, 0.001);
    let mut expected = vec![0.05, 0.1, 0.1];
    for t in 1..18 {
        let factor = |t: f64| 1.0 + (std::f64::consts::PI * t / total).cos();
        let before = expected[expected.len() - 1];
        expected.push(least + (before - least) * factor(f64::from(t)) / factor(f64::from(t - 1)));
    }
    let cosine =
        ScheduleConfig { warmup_steps: 2, min_lr: Some(least), ..of(ScheduleKind::Cosine) };
    assert_close(&rates(cosine, 20, &[]), &expected);
}

#[test]
fn a_plateau_lowers_the_rate() {
    let plateau = ScheduleConfig {
        kind: ScheduleKind::Plateau,
        gamma: Some(0.5),
        lr_patience: Some(2),
        min_lr: Some(0.03),
        ..Default::default()
    };
    let rate = |valid: &[f64]| rates(plateau.clone(), 1, valid)[0];
    for (valid, expected) in [
        (&[][..], 0.1),
        (&[0.5, 0.5, 0.5], 0.1),
        // The third evaluation in a row without an improvement.
        (&[0.5, 0.5, 0.4, 0.5], 0.05),
        (&[0.5, 0.5, 0.6, 0.6, 0.6], 0.1),
        // An improvement by less than one in ten thousand does not count.
        (&[0.5, 0.50001, 0.50002, 0.50003], 0.05),
        // The count starts anew after a reduction; the rate never falls below its least.
        (&[0.5, 0.5, 0.5, 0.5, 0.5, 0.5], 0.05),
        (&[0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5], 0.03),
        (&[0.5; 20], 0.03),
        // Errors, which are negated, fall.
        (&[-4.0, -3.0, -2.0, -1.0], 0.1),
    ] {
        assert_close(&[rate(valid)], &[expected]);
    }
}

#[test]
fn options_of_another_optimizer_or_schedule_are_refused() {
    let base = config(ModelKind::Sage, Parallelism::Single, 1);
    type Change = fn(&mut Config);
    use OptimizerKind::Sgd;
    let without_momentum: Change = |c| {
        (c.run.optimizer.kind, c.run.optimizer.momentum, c.run.optimizer.nesterov) =
            (Sgd, Some(0.0), true);
    };
    let cases: [(Change, &str); 16] = [
        (|c| c.run.optimizer.momentum = Some(0.9), "--momentum is for --optimizer sgd"),
        (|c| c.run.optimizer.nesterov = true, "--nesterov is for --optimizer sgd"),
        (
            |c| (c.run.optimizer.kind, c.run.optimizer.betas) = (Sgd, Some(Betas::default())),
            "--betas is for --optimizer adam",
        ),
        (without_momentum, "--nesterov needs a --momentum"),
        (|c| c.run.optimizer.lr = f64::NAN, "--lr NaN: expected a positive number"),
        (|c| c.run.optimizer.weight_decay = -1.0, "--weight-decay -1: expected a number from 0"),
        (|c| c.run.optimizer.clip_norm = Some(0.0), "--clip-norm 0: expected a positive number"),
        (|c| c.run.schedule.gamma = Some(0.5), "--gamma is for --schedule plateau"),
        (
            |c| c.run.schedule.decay_epochs = Some(5),
            "--decay-epochs is for --schedule linear and cosine",
        ),
        (
            |c| (c.run.schedule.kind, c.run.schedule.min_lr) = (ScheduleKind::Cosine, Some(1.0)),
            "--min-lr 1: expected 0 to",
        ),
        (
            |c| (c.run.schedule.kind, c.run.schedule.gamma) = (ScheduleKind::Plateau, Some(1.0)),
            "--gamma 1: expected above 0",
        ),
        (
            |c| {
                (c.run.schedule.kind, c.run.schedule.decay_epochs) = (ScheduleKind::Linear, Some(0))
            },
            "--decay-epochs 0",
        ),
        (|c| c.run.schedule.lr_patience = Some(3), "--lr-patience is for --schedule plateau"),
        (|c| c.run.patience = Some(0), "--patience 0"),
        (|c| (c.run.patience, c.run.eval_every) = (Some(1), 0), "--patience needs evaluations"),
        (
            |c| (c.run.schedule.kind, c.run.eval_every) = (ScheduleKind::Plateau, 0),
            "--schedule plateau needs evaluations",
        ),
    ];
    for (change, words) in cases {
        assert_refused(changed(&base, change).check(), words);
    }
    let late = changed(&base, |config| {
        (config.run.schedule.kind, config.run.schedule.warmup_steps) = (ScheduleKind::Cosine, 20)
    });
    let model = Model::new(&late, 6, 4);
    assert_refused(
        Optimizer::new(model.parameters(), &late, 10),
        "--warmup-steps 20: the schedule is over after 20",
    );
}

/// A gradient that is not finite on a single rank leaves the parameters of all ranks as they were.
#[test]
fn an_overflow_on_one_rank_is_left_out_on_all() {
    let base = OptimizerConfig {
        lr: 0.02,
        weight_decay: 0.01,
        clip_norm: Some(0.5),
        ..Default::default()
    };
    for kind in [OptimizerKind::Adam, OptimizerKind::Sgd] {
        let config = with(OptimizerConfig { kind, ..base.clone() });
        let plain = Place::emulated(1);
        let f16 = plain.clone().with_dtype(Dtype::F16);
        let run = |place: &Place, overflow: Option<u32>| {
            on_ranks(2, |comm| {
                let model = Model::with_layers(place, &config, 6, 4, None, None);
                let parameters = model.parameters();
                let mut optimizer = Optimizer::new(parameters, &config, 10).unwrap();
                let mut seen = Vec::new();
                for step in 0..6 {
                    if Some(step) == overflow {
                        give_gradients(
                            parameters,
                            step,
                            f64::from(f32::MAX) * (1.0 - comm.rank() as f64) * 4.0,
                        );
                        let before = (values(parameters), to_rows(optimizer.state()[0].1).unwrap());
                        let update = optimizer.update(parameters, comm).unwrap();
                        assert!(
                            update.skipped && !update.gradient_norm.on_host().unwrap().is_finite(),
                            "{update:?}"
                        );
                        assert_eq!(
                            before,
                            (values(parameters), to_rows(optimizer.state()[0].1).unwrap())
                        );
                    }
                    give_gradients(parameters, step, f64::from(optimizer.loss_scale()));
                    let update = optimizer.update(parameters, comm).unwrap();
                    seen.push((
                        update.gradient_norm.on_host().unwrap(),
                        update.learning_rate,
                        update.skipped,
                    ));
                }
                (values(parameters), seen, optimizer.loss_scale(), optimizer.steps)
            })
        };
        let exact = run(&plain, None).remove(0);
        for (overflow, scale, steps) in
            [(None, 65536.0, 6), (Some(0), 32768.0, 7), (Some(3), 32768.0, 7)]
        {
            for found in run(&f16, overflow) {
                assert_eq!(
                    (&found.0, &found.1),
                    (&exact.0, &exact.1),
                    "{kind:?}, overflow at {overflow:?}"
                );
                assert_eq!((found.2, found.3), (scale, steps));
            }
        }
        assert_eq!((exact.2, exact.3), (1.0, 6));
    }
}
