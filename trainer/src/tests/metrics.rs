//! The loss of several classes against its formula; scores against scikit-learn's of the same labels and logits, which both make with one small generator:
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

use gsplit_store::DatasetWriter;
use tempfile::TempDir;

use super::fixture::provenance;
use crate::Metric;
use crate::metric::Scorer;
use crate::metric::labels::Labels;
use crate::operator::Place;
use crate::operator::{from_rows, to_rows};
use crate::task::NodeTargets;

const VERTICES: usize = 60;

struct Lcg(u64);

impl Lcg {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn logits(&mut self, levels: u64, classes: usize) -> Vec<f32> {
        (0..VERTICES * classes).map(|_| self.below(levels) as f32 / 4.0 - 1.0).collect()
    }
}

/// The labels that `add` gives a dataset without edges.
fn labels(add: impl FnOnce(&mut DatasetWriter)) -> (Labels, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = DatasetWriter::create(&folder.path().join("ds"), false, &[0; VERTICES + 1], &[]).unwrap();
    add(&mut writer);
    (Labels::open(&writer.finish(provenance()).unwrap()).unwrap(), folder)
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
    // No vertex has class 4, which some are predicted to have.
    if let Labels::One { classes, .. } = &mut labels {
        assert_eq!(std::mem::replace(classes, 5), 4);
    }
    let logits = g.logits(12, 5);
    equal(score("accuracy", &labels, &logits, 5), 0.15217391304347827);
    equal(score("micro-f1", &labels, &logits, 5), 0.15217391304347827);
    equal(score("macro-f1", &labels, &logits, 5), 0.13262032085561498);
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
        .flat_map(|_| (0..9).fold(0u16, |row, class| row | u16::from(g.below(4) == 0) << class).to_le_bytes())
        .collect();
    let (labels, _folder) = labels(|writer| {
        let mut out = writer.multi_label_writer(10).unwrap();
        out.push(&rows).unwrap();
        writer.add_multi_labels(out).unwrap();
    });
    assert_eq!(Metric::of(&labels), Metric::MicroF1);
    let logits = g.logits(9, 10);
    equal(score("accuracy", &labels, &logits, 10), 0.0);
    equal(score("micro-f1", &labels, &logits, 10), 0.2711864406779661);
    equal(score("macro-f1", &labels, &logits, 10), 0.2551043349415442);
    // No vertex has class 9, which therefore has no area.
    equal(score("roc-auc", &labels, &logits, 10), 0.45544804068751965);
}

#[test]
fn oracle_the_loss_of_several_classes_is_its_formula() {
    let mut g = Lcg(10);
    let rows: Vec<u8> = (0..VERTICES).map(|_| g.below(8) as u8).collect();
    let (labels, _folder) = labels(|writer| {
        let mut out = writer.multi_label_writer(3).unwrap();
        out.push(&rows).unwrap();
        writer.add_multi_labels(out).unwrap();
    });
    let seeds: Vec<u32> = (0..VERTICES as u32).step_by(3).collect();
    let logits = &g.logits(60, 3)[..seeds.len() * 3];
    let targets = NodeTargets { labels: &labels, labelled: 50 };
    let logits_tensor = from_rows(logits.to_vec(), seeds.len(), 3).unwrap();
    let found = targets.loss(&Place::host(), &logits_tensor, &seeds, 1.0).unwrap();
    let place = Place::under_test(1);
    let on_gpu = targets.loss(&place, &place.bring(&logits_tensor).unwrap(), &seeds, 1.0).unwrap();
    let numbers = Vec::<f64>::try_from(found.numbers.unwrap()).unwrap();
    assert_eq!(Vec::<f64>::try_from(on_gpu.numbers.unwrap()).unwrap(), numbers);
    let gradient = to_rows(found.gradient.as_ref().unwrap()).unwrap();
    let (mut loss, mut right) = (0.0, 0);
    for (i, &logit) in logits.iter().enumerate() {
        let (x, has) = (f64::from(logit), rows[seeds[i / 3] as usize] >> (i % 3) & 1 != 0);
        let sigmoid = 1.0 / (1.0 + (-x).exp());
        loss -= if has { sigmoid.ln() } else { (1.0 - sigmoid).ln() };
        right += u64::from((logit > 0.0) == has);
        let slope = (sigmoid - f64::from(u8::from(has))) / 50.0;
        assert!((f64::from(gradient[i]) - slope).abs() < 1e-7, "{i}: {}, expected {slope}", gradient[i]);
    }
    assert!((numbers[0] - loss / 50.0).abs() < 1e-5 * loss, "{}, expected {}", numbers[0], loss / 50.0);
    assert_eq!((numbers[1], found.counted), (right as f64, 60));
}

#[test]
fn without_labels_there_is_no_score() {
    let (labels, _folder) = labels(|writer| writer.add_labels(&[&[1], &[-1; VERTICES - 1][..]].concat()).unwrap());
    for metric in ["accuracy", "roc-auc", "macro-f1"] {
        let mut scorer = Scorer::new(metric.parse().unwrap(), &labels).unwrap();
        scorer.push(5, &[1.0, 2.0]);
        assert_eq!(scorer.finish(), None, "{metric}");
    }
    // Every labelled vertex has the same class.
    assert_eq!(score("roc-auc", &labels, &[0.5; 2 * VERTICES], 2), None);
}
