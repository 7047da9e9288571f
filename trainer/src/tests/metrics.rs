//! Losses against torch's or their formulas; scores against scikit-learn's of the same labels and
//! logits, which both make with one small generator:
//!
//! ```python
//! class Lcg:
//!     def __init__(s, x): s.x = x
//!     def below(s, n):
//!         s.x = (s.x * 6364136223846793005 + 1442695040888963407) % 2**64
//!         return (s.x >> 33) % n
//! g = Lcg(7); n, c = 60, 5
//! lab = np.array([g.below(5) - 1 for _ in range(n)])
//! log = np.array([[g.below(12) / 4 - 1 for _ in range(c)] for _ in range(n)])
//! ok = lab >= 0; pred = log.argmax(1)
//! accuracy_score(lab[ok], pred[ok]), f1_score(lab[ok], pred[ok], average="micro")   # 0.15217391304347827, the same
//! f1_score(lab[ok], pred[ok], average="macro")                                      # 0.13262032085561498
//! g = Lcg(8)
//! lab = np.array([g.below(3) - 1 for _ in range(n)])
//! log = np.array([[g.below(8) / 4 - 1 for _ in range(2)] for _ in range(n)])
//! ok = lab >= 0
//! roc_auc_score(lab[ok], (log[:, 1] - log[:, 0])[ok])                               # 0.4611528822055138
//! g = Lcg(9)
//! lab = np.array([[int(g.below(4) == 0) if k < 9 else 0 for k in range(10)] for _ in range(n)])
//! log = np.array([[g.below(9) / 4 - 1 for _ in range(10)] for _ in range(n)])
//! pred = (log > 0).astype(int)
//! accuracy_score(lab, pred), f1_score(lab, pred, average="micro")                   # 0.0, 0.2711864406779661
//! f1_score(lab, pred, average="macro", zero_division=0)                             # 0.2551043349415442
//! np.mean([roc_auc_score(lab[:, k], log[:, k]) for k in range(9)])                  # 0.45544804068751965
//! ```

use gsplit_store::{Dataset, DatasetWriter, Split};

use super::fixture::{Fixture, add_multi_labels, on_graph};
use crate::config::{NumberLoss, TaskConfig};
use crate::metric::labels::{Labels, TargetScale};
use crate::metric::{Metric, Scorer};
use crate::operator::{Place, from_rows, to_rows};
use crate::task::NodeTask;

const VERTICES: usize = 60;

struct Lcg(u64);

impl Lcg {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn logits(&mut self, levels: u64, classes: usize) -> Vec<f32> {
        (0..VERTICES * classes).map(|_| self.below(levels) as f32 / 4.0 - 1.0).collect()
    }
}

/// A dataset without edges that `add` adds labels to. All its vertices are in the train split.
fn labelled(add: impl FnOnce(&mut DatasetWriter)) -> Fixture {
    on_graph(&vec![vec![]; VERTICES], |writer| {
        add(writer);
        writer.add_split(Split::Train, (0..VERTICES as u32).collect()).unwrap();
    })
}

/// The labels that `add` gives a dataset.
fn labels(add: impl FnOnce(&mut DatasetWriter)) -> (Labels, Fixture) {
    let fixture = labelled(add);
    (Labels::open(&fixture.dataset).unwrap(), fixture)
}

/// The task of `config` on `dataset`.
fn task(dataset: &Dataset, config: &TaskConfig) -> crate::Result<NodeTask> {
    NodeTask::new(
        dataset,
        Labels::open(dataset).unwrap(),
        config,
        &dataset.split(Split::Train).unwrap(),
        None,
    )
}

/// Loss, right decisions and gradient of `seeds` in the mini-batch `batch` with these `logits`; the
/// same on the host and a GPU.
fn loss(
    task: &NodeTask,
    batch: &[u32],
    seeds: &[u32],
    logits: &[f32],
) -> ([f64; 2], Vec<f32>, u64) {
    let targets = task.targets(batch);
    let logits = from_rows(logits.to_vec(), seeds.len(), logits.len() / seeds.len()).unwrap();
    let found = targets.loss(&Place::host(), &logits, seeds, 1.0).unwrap();
    let place = Place::under_test(1);
    let on_gpu = targets.loss(&place, &place.bring(&logits).unwrap(), seeds, 1.0).unwrap();
    let numbers = Vec::<f64>::try_from(found.numbers.unwrap()).unwrap();
    assert_eq!(Vec::<f64>::try_from(on_gpu.numbers.unwrap()).unwrap(), numbers);
    (
        [numbers[0], numbers[1]],
        to_rows(found.gradient.as_ref().unwrap()).unwrap().to_vec(),
        found.counted,
    )
}

fn score(metric: &str, labels: &Labels, logits: &[f32], classes: usize) -> Option<f64> {
    let mut scorer = Scorer::new(metric.parse::<Metric>().unwrap(), labels).unwrap();
    logits.chunks_exact(classes).zip(0..).for_each(|(row, v)| scorer.push(v, row));
    scorer.finish()
}

#[track_caller]
fn equal(found: Option<f64>, expected: f64) {
    let found = found.unwrap();
    assert!((found - expected).abs() < 1e-12, "{found}, scikit-learn has {expected}");
}

#[test]
fn golden_one_class_of_five() {
    let mut g = Lcg(7);
    let classes: Vec<i32> = (0..VERTICES).map(|_| g.below(5) as i32 - 1).collect();
    let (mut labels, _folder) = labels(|writer| writer.add_labels(&classes).unwrap());
    // No vertex has class 4, which is predicted for some, and class 5 neither occurs nor is
    // predicted.
    if let Labels::One { classes, .. } = &mut labels {
        assert_eq!(std::mem::replace(classes, 6), 4);
    }
    let logits: Vec<f32> =
        g.logits(12, 5).chunks(5).flat_map(|row| [row, &[-100.0]].concat()).collect();
    equal(score("accuracy", &labels, &logits, 6), 0.15217391304347827);
    equal(score("micro-f1", &labels, &logits, 6), 0.15217391304347827);
    equal(score("macro-f1", &labels, &logits, 6), 0.13262032085561498);
}

#[test]
fn golden_two_classes() {
    let mut g = Lcg(8);
    let classes: Vec<i32> = (0..VERTICES).map(|_| g.below(3) as i32 - 1).collect();
    let (labels, _folder) = labels(|writer| writer.add_labels(&classes).unwrap());
    assert_eq!(Metric::of(&labels), Metric::RocAuc);
    equal(score("roc-auc", &labels, &g.logits(8, 2), 2), 0.4611528822055138);
}

#[test]
fn golden_several_classes() {
    let mut g = Lcg(9);
    let rows: Vec<u8> = (0..VERTICES)
        .flat_map(|_| {
            (0..9).fold(0u16, |row, class| row | u16::from(g.below(4) == 0) << class).to_le_bytes()
        })
        .collect();
    let (labels, _folder) = labels(|writer| add_multi_labels(writer, 10, &rows));
    assert_eq!(Metric::of(&labels), Metric::MicroF1);
    let logits = g.logits(9, 10);
    equal(score("accuracy", &labels, &logits, 10), 0.0);
    equal(score("micro-f1", &labels, &logits, 10), 0.2711864406779661);
    equal(score("macro-f1", &labels, &logits, 10), 0.2551043349415442);
    // No vertex has class 9, whose area is therefore undefined.
    equal(score("roc-auc", &labels, &logits, 10), 0.45544804068751965);
}

#[test]
fn without_labels_there_is_no_score() {
    let (labels, _folder) =
        labels(|writer| writer.add_labels(&[&[1], &[-1; VERTICES - 1][..]].concat()).unwrap());
    for metric in ["accuracy", "roc-auc", "macro-f1"] {
        let mut scorer = Scorer::new(metric.parse().unwrap(), &labels).unwrap();
        scorer.push(5, &[1.0, 2.0]);
        assert_eq!(scorer.finish(), None, "{metric}");
    }
    // Every labelled vertex has the same class.
    assert_eq!(score("roc-auc", &labels, &[0.5; 2 * VERTICES], 2), None);
}

#[test]
fn golden_errors_of_numbers() {
    // sklearn: mean_squared_error([1, 2, 4, 7], [2, 2, 5, 3]) = 4.5, mean_absolute_error = 1.5,
    // r2_score = 0.14285714285714285.
    let numbers = [1.0, 2.0, f32::NAN, 4.0, 7.0];
    let (labels, _folder) = labels(|writer| {
        writer.add_numeric_labels(&[&numbers[..], &[f32::NAN; VERTICES - 5]].concat()).unwrap()
    });
    assert_eq!((Metric::of(&labels), labels.outputs()), (Metric::Rmse, 1));
    // On the scale of mean 3 and deviation 2.
    let labels = labels.on(TargetScale { mean: 3.0, deviation: 2.0 });
    let scaled = [-0.5, -0.5, 9.0, 1.0, 0.0];
    equal(score("rmse", &labels, &scaled, 1), 4.5f64.sqrt());
    equal(score("mae", &labels, &scaled, 1), 1.5);
    equal(score("r2", &labels, &scaled, 1), 0.14285714285714285);
    assert_eq!(score("rmse", &labels, &[], 1), None);
    // One number has no variance.
    assert_eq!(score("r2", &labels, &[0.25], 1), None);
    equal(score("mae", &labels, &[0.25], 1), 2.5);
    for metric in [Metric::Rmse, Metric::Mae] {
        assert!(metric.is_error() && metric.scores_numbers());
    }
    assert!(!Metric::R2.is_error() && !Metric::Accuracy.is_error());
    let message = Scorer::new(Metric::Accuracy, &labels).err().unwrap().to_string();
    assert!(message.contains("choose rmse, mae or r2"), "{message}");
}

#[test]
fn numbers_are_scaled_by_mean_and_population_deviation() {
    let scale = |numbers: &[f32]| TargetScale::of(numbers.iter().copied());
    assert_eq!(
        scale(&[2.0, f32::NAN, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]),
        TargetScale { mean: 5.0, deviation: 2.0 }
    );
    // With equal numbers, or none, nothing is divided by 0.
    assert_eq!(scale(&[7.0, 7.0]), TargetScale { mean: 7.0, deviation: 1.0 });
    assert_eq!(scale(&[]), TargetScale { mean: 0.0, deviation: 1.0 });
    // In f64: f32 would lose all of these digits.
    let far = scale(&[1e8, 1e8 + 8.0, 1e8 + 16.0]);
    assert!(
        (far.mean - (1e8 + 8.0)).abs() < 1e-6
            && (far.deviation - (128f64 / 3.0).sqrt()).abs() < 1e-6,
        "{far:?}"
    );
    let back: Vec<f32> =
        [1e8, 1e8 + 8.0].iter().map(|&number| far.in_unit(far.scaled(number))).collect();
    assert_eq!(back, [1e8, 1e8 + 8.0]);
}

#[test]
fn oracle_the_losses_of_numbers_are_their_formulas() {
    let mut g = Lcg(11);
    let numbers: Vec<f32> = (0..VERTICES)
        .map(|_| if g.below(5) == 0 { f32::NAN } else { 100.0 + g.below(50) as f32 })
        .collect();
    let fixture = labelled(|writer| writer.add_numeric_labels(&numbers).unwrap());
    let (batch, seeds): (Vec<u32>, Vec<u32>) = ((0..50).collect(), (0..40).step_by(3).collect());
    let rows = &g.logits(60, 1)[..seeds.len()];
    let known = |v: &&u32| !numbers[**v as usize].is_nan();
    let given: Vec<f64> =
        numbers.iter().filter(|number| !number.is_nan()).map(|&number| f64::from(number)).collect();
    let mean = given.iter().sum::<f64>() / given.len() as f64;
    let deviation = (given.iter().map(|number| (number - mean).powi(2)).sum::<f64>()
        / given.len() as f64)
        .sqrt();
    let count = batch.iter().filter(known).count() as f64;
    for kind in [NumberLoss::Mse, NumberLoss::Mae] {
        let task =
            task(&fixture.dataset, &TaskConfig { loss: Some(kind), ..TaskConfig::default() })
                .unwrap();
        let (found, gradient, counted) = loss(&task, &batch, &seeds, rows);
        let mut expected = 0.0;
        for (i, v) in seeds.iter().enumerate() {
            let error = match known(&v) {
                true => f64::from(rows[i]) - (f64::from(numbers[*v as usize]) - mean) / deviation,
                false => 0.0,
            };
            let (cost, slope) = match kind {
                NumberLoss::Mse => (error * error, 2.0 * error),
                NumberLoss::Mae => (error.abs(), if error == 0.0 { 0.0 } else { error.signum() }),
            };
            expected += cost / count;
            assert!(
                (f64::from(gradient[i]) - slope / count).abs() < 1e-6,
                "{kind:?}, {i}: {}",
                gradient[i]
            );
        }
        assert!(
            (found[0] - expected).abs() < 1e-6 * expected,
            "{kind:?}: {}, expected {expected}",
            found[0]
        );
        assert_eq!((found[1], counted), (0.0, 0));
    }
}

#[test]
fn oracle_weighted_losses_of_classes_are_torchs_own() {
    let mut g = Lcg(12);
    let classes: Vec<i32> = (0..VERTICES).map(|_| g.below(4).min(g.below(5)) as i32 - 1).collect();
    let fixture = labelled(|writer| writer.add_labels(&classes).unwrap());
    let counts: Vec<u64> = (0..3)
        .map(|class| classes.iter().filter(|&&label| label == class).count() as u64)
        .collect();
    let all = counts.iter().sum::<u64>() as f64;
    // Equal to sklearn.utils.class_weight.compute_class_weight("balanced").
    let balanced: Vec<f32> =
        counts.iter().map(|&count| (all / (3.0 * count as f64)) as f32).collect();
    let batch: Vec<u32> = (5..45).collect();
    let logits = g.logits(60, 3)[..batch.len() * 3].to_vec();
    for (asked, weights) in [
        ("balanced", balanced),
        ("0.5,2,7", vec![0.5, 2.0, 7.0]),
        ("0,1,0.25", vec![0.0, 1.0, 0.25]),
    ] {
        let config =
            TaskConfig { class_weights: Some(asked.parse().unwrap()), ..TaskConfig::default() };
        let task = task(&fixture.dataset, &config).unwrap();
        let rows = from_rows(logits.clone(), batch.len(), 3).unwrap().set_requires_grad(true);
        let wanted: Vec<i64> = batch.iter().map(|&v| i64::from(classes[v as usize])).collect();
        let expected = rows.cross_entropy_loss(
            &tch::Tensor::from_slice(&wanted),
            Some(tch::Tensor::from_slice(&weights)),
            tch::Reduction::Mean,
            -1,
            0.0,
        );
        expected.backward();
        let expected = expected.double_value(&[]);
        let (found, gradient, _) = loss(&task, &batch, &batch, &logits);
        assert!(
            (found[0] - expected).abs() < 1e-6 * expected,
            "{asked}: {}, torch has {expected}",
            found[0]
        );
        let evaluated = mean_loss(&task, &batch, &logits);
        assert!(
            (evaluated - expected).abs() < 1e-6 * expected,
            "{asked}: {evaluated}, torch has {expected}"
        );
        let of_torch = to_rows(&rows.grad()).unwrap().to_vec();
        assert!(gradient.iter().zip(&of_torch).all(|(a, b)| (a - b).abs() < 1e-7), "{asked}");
        // Two ranks with unequal seeds have parts of the same mean.
        let parts = [&batch[..7], &batch[7..]].map(|seeds| {
            let at = seeds[0] as usize - 5;
            loss(&task, &batch, seeds, &logits[3 * at..3 * (at + seeds.len())]).0[0]
        });
        assert!(
            (parts[0] + parts[1] - expected).abs() < 1e-6 * expected,
            "{asked}: {parts:?}, torch has {expected}"
        );
    }
}

#[test]
fn oracle_losses_of_several_classes_are_torchs_own() {
    let mut g = Lcg(13);
    let rows: Vec<u8> =
        (0..VERTICES).map(|_| (g.below(2) | u64::from(g.below(7) == 0) << 1) as u8).collect();
    let fixture = labelled(|writer| add_multi_labels(writer, 3, &rows));
    let with = |class: u8| rows.iter().filter(|row| *row >> class & 1 != 0).count() as f32;
    let all = VERTICES as f32;
    // No vertex has class 2, whose weight would be infinite.
    let balanced = [(all - with(0)) / with(0), (all - with(1)) / with(1), 1.0];
    let (batch, seeds): (Vec<u32>, Vec<u32>) = ((0..50).collect(), (0..50).step_by(3).collect());
    let logits = &g.logits(60, 3)[..3 * seeds.len()];
    let wanted: Vec<f32> = seeds
        .iter()
        .flat_map(|&v| (0..3).map(move |class| (v, class)))
        .map(|(v, class)| f32::from(rows[v as usize] >> class & 1))
        .collect();
    let right =
        logits.iter().zip(&wanted).filter(|(logit, has)| (**logit > 0.0) == (**has == 1.0)).count();
    for (asked, weights) in
        [(None, [1.0; 3]), (Some("balanced"), balanced), (Some("3,0.5,1"), [3.0, 0.5, 1.0])]
    {
        let class_weights = asked.map(|weights| weights.parse().unwrap());
        let task =
            task(&fixture.dataset, &TaskConfig { class_weights, ..TaskConfig::default() }).unwrap();
        let leaf = from_rows(logits.to_vec(), seeds.len(), 3).unwrap().set_requires_grad(true);
        let expected = leaf.binary_cross_entropy_with_logits::<tch::Tensor>(
            &from_rows(wanted.clone(), seeds.len(), 3).unwrap(),
            None,
            Some(tch::Tensor::from_slice(&weights)),
            tch::Reduction::Sum,
        ) / 50.0;
        expected.backward();
        let expected = expected.double_value(&[]);
        let ([found, of_right], gradient, counted) = loss(&task, &batch, &seeds, logits);
        let evaluated = mean_loss(&task, &seeds, logits) * seeds.len() as f64 / 50.0;
        for found in [found, evaluated] {
            assert!(
                (found - expected).abs() < 1e-5 * expected,
                "{asked:?}: {found}, torch has {expected}"
            );
        }
        let of_torch = to_rows(&leaf.grad()).unwrap().to_vec();
        assert!(gradient.iter().zip(&of_torch).all(|(a, b)| (a - b).abs() < 1e-7), "{asked:?}");
        assert_eq!((of_right, counted as usize), (right as f64, logits.len()));
    }
}

/// Classes that a vertex has, and classes for which it has a value; packed bits.
type Cells = (u8, u8);

/// Vertices without a value for some of three classes: in a third of the cells, for all classes of
/// each seventh vertex, and for class 2 of all.
fn lacking(g: &mut Lcg) -> Vec<Cells> {
    let mut cells = |v: usize| {
        let (has, known) = (g.below(4) as u8, 1 << g.below(3) | g.below(4) as u8);
        let known = if v.is_multiple_of(7) { 0 } else { known & 3 };
        (has & known, known)
    };
    (0..VERTICES).map(&mut cells).collect()
}

fn add_lacking(writer: &mut DatasetWriter, cells: &[Cells]) {
    let mut out = writer.multi_label_writer(3).unwrap();
    cells.iter().for_each(|&(has, known)| out.push_known(&[has], &[known]).unwrap());
    writer.add_multi_labels(out).unwrap();
}

#[test]
fn oracle_cells_without_a_value_are_left_out_of_the_loss() {
    let mut g = Lcg(17);
    let cells = lacking(&mut g);
    let fixture = labelled(|writer| add_lacking(writer, &cells));
    let batch: Vec<u32> = (0..50).collect();
    let logits = &g.logits(60, 3)[..150];
    let known = |v: u32, class: u32| cells[v as usize].1 >> class & 1 == 1;
    let has = |v: u32, class: u32| cells[v as usize].0 >> class & 1 == 1;
    let all_known: Vec<usize> =
        (0..150).filter(|&at| known(at as u32 / 3, at as u32 % 3)).collect();
    let count = |class: u32, with: bool| {
        (0..VERTICES as u32).filter(|&v| known(v, class) && has(v, class) == with).count() as f32
    };
    let balanced = [0, 1].map(|class| count(class, false) / count(class, true));
    for (asked, weights) in [(None, [1.0; 3]), (Some("balanced"), [balanced[0], balanced[1], 1.0])]
    {
        let class_weights = asked.map(|weights| weights.parse().unwrap());
        let task =
            task(&fixture.dataset, &TaskConfig { class_weights, ..TaskConfig::default() }).unwrap();
        // torch's loss of the known cells only: their mean, times the number of classes.
        let pick = |of: &dyn Fn(usize) -> f32| {
            tch::Tensor::from_slice(&all_known.iter().map(|&at| of(at)).collect::<Vec<f32>>())
        };
        let leaf = pick(&|at| logits[at]).set_requires_grad(true);
        let expected: tch::Tensor = 3.0
            * leaf.binary_cross_entropy_with_logits::<tch::Tensor>(
                &pick(&|at| f32::from(u8::from(has(at as u32 / 3, at as u32 % 3)))),
                None,
                Some(pick(&|at| weights[at % 3])),
                tch::Reduction::Mean,
            );
        expected.backward();
        let expected = expected.double_value(&[]);
        let ([found, right], gradient, counted) = loss(&task, &batch, &batch, logits);
        let near = |found: f64| (found - expected).abs() < 1e-5 * expected;
        assert!(near(found), "{asked:?}: {found}, torch has {expected}");
        assert!(near(mean_loss(&task, &batch, logits)), "{asked:?}");
        let mut of_torch = vec![0f32; 150];
        let known_gradient: Vec<f32> = Vec::try_from(leaf.grad()).unwrap();
        all_known.iter().zip(known_gradient).for_each(|(&at, slope)| of_torch[at] = slope);
        assert!(gradient.iter().zip(&of_torch).all(|(a, b)| (a - b).abs() < 1e-7), "{asked:?}");
        let of_right =
            all_known.iter().filter(|&&at| (logits[at] > 0.0) == has(at as u32 / 3, at as u32 % 3));
        assert_eq!((right, counted as usize), (of_right.count() as f64, all_known.len()));
        // Parts of unequal size, the first of a vertex without any value, add up to the same.
        let parts = [0..1, 1..8, 8..50].map(|seeds: std::ops::Range<usize>| {
            loss(&task, &batch, &batch[seeds.clone()], &logits[3 * seeds.start..3 * seeds.end]).0[0]
        });
        assert!(parts[0] == 0.0 && near(parts.iter().sum()), "{asked:?}: {parts:?}");
    }
    // Cells that all have a value give the same loss, to the bit, with or without a record of it.
    let rows: Vec<u8> = cells.iter().map(|&(has, _)| has).collect();
    let full: Vec<Cells> = rows.iter().map(|&has| (has, 7)).collect();
    let [plain, full] = [
        labelled(|writer| add_multi_labels(writer, 3, &rows)),
        labelled(|writer| add_lacking(writer, &full)),
    ]
    .map(|fixture| {
        let task = task(&fixture.dataset, &TaskConfig::default()).unwrap();
        loss(&task, &batch, &batch, logits)
    });
    assert!(plain == full);
    let none: Vec<Cells> = vec![(0, 0); VERTICES];
    let fixture = labelled(|writer| add_lacking(writer, &none));
    let refused = task(&fixture.dataset, &TaskConfig::default()).err().unwrap().to_string();
    assert!(refused.contains("no vertex of the train split has a label"), "{refused}");
}

#[test]
fn cells_without_a_value_are_left_out_of_the_scores() {
    // Neither class 2 nor vertex 3 has a value. Labels, and predictions:
    //            vertex 0  1      2      4
    //   class 0  1, yes    0, yes .      0, no
    //   class 1  .         1, yes 1, yes 0, yes
    let mut cells = vec![(0, 0); VERTICES];
    cells[..3].copy_from_slice(&[(0b01, 0b01), (0b10, 0b11), (0b10, 0b10)]);
    cells[4] = (0b00, 0b11);
    let (labels, _folder) = labels(|writer| add_lacking(writer, &cells));
    let logits: Vec<f32> =
        [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [-1.0, 1.0, 1.0], [1.0; 3], [-1.0, 1.0, 1.0]].concat();
    // Right in all known cells: vertices 0 and 2, of four.
    equal(score("accuracy", &labels, &logits, 3), 0.5);
    // Right yes 1 + 2, predicted 2 + 3, actual 1 + 2.
    equal(score("micro-f1", &labels, &logits, 3), 6.0 / 8.0);
    equal(score("macro-f1", &labels, &logits, 3), (2.0 / 3.0 + 4.0 / 5.0) / 2.0);
    // Of class 0: vertex 0 ranks equal with vertex 1 and above vertex 4. Of class 1: all are equal.
    equal(score("roc-auc", &labels, &logits, 3), (0.75 + 0.5) / 2.0);
}

/// The mean loss of `vertices`, as evaluations compute it.
fn mean_loss(task: &NodeTask, vertices: &[u32], logits: &[f32]) -> f64 {
    let rows = logits.chunks_exact(task.labels.outputs());
    let losses = vertices.iter().zip(rows).filter_map(|(&v, logits)| task.loss_of(v, logits));
    let [loss, weight] =
        losses.fold([0.0; 2], |sums, [loss, weight]| [sums[0] + loss, sums[1] + weight]);
    loss / weight
}
