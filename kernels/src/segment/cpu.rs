//! Softmax on the host, for one segment.

/// Computes the softmax of each of `dim` columns, in place.
#[inline(always)]
pub(crate) fn softmax(values: &mut [f32], dim: usize) {
    for column in 0..dim {
        let len = values.len();
        let of_column = || (column..len).step_by(dim);
        // Subtracting the largest only changes the range.
        let largest = of_column().fold(f32::NEG_INFINITY, |largest, at| largest.max(values[at]));
        let mut total = 0f32;
        for at in of_column() {
            values[at] = (values[at] - largest).exp();
            total += values[at];
        }
        let factor = 1.0 / total;
        for at in of_column() {
            values[at] *= factor;
        }
    }
}

/// An attention weight after dropout: 0 if it is dropped (it has a minus sign then), else
/// multiplied by `keep`.
#[inline(always)]
pub(crate) fn kept(weight: f32, keep: f32) -> f32 {
    // A NaN passes.
    if weight < 0.0 { 0.0 } else { keep * weight }
}

/// Turns the gradient of the weights after [dropout](kept) into the gradient of the softmax's
/// input, in place.
#[inline(always)]
pub(crate) fn softmax_backward(weights: &[f32], gradient: &mut [f32], dim: usize, keep: f32) {
    for column in 0..dim {
        let len = gradient.len();
        let of_column = || (column..len).step_by(dim);
        let mut mean = 0f32;
        for at in of_column() {
            gradient[at] = if weights[at] < 0.0 { 0.0 } else { keep * gradient[at] };
            mean += weights[at].abs() * gradient[at];
        }
        for at in of_column() {
            gradient[at] = weights[at].abs() * (gradient[at] - mean);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::softmax;

    #[test]
    fn scores_of_any_size_give_weights() {
        let (mut three, mut one) = ([1000.0, 999.0, -1000.0], [88.0]);
        softmax(&mut three, 1);
        softmax(&mut one, 1);
        assert!((three[0] - 0.731_058_6).abs() < 1e-6 && three[2] == 0.0 && one == [1.0]);
    }
}
