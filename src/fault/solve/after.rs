//! What a first fault reads, taken for right: a second is then solved as if it were the only one, and joined with the first.

use super::given::{Given, Side};
use super::replay;
use super::system::{System, Theory};
use crate::fault::edit::{Which, operand};
use crate::job::Operand;
use rayon::prelude::*;
use std::borrow::Cow;

/// Multiply-adds of a product that is computed again.
const WORK: usize = 1 << 28;

/// The system of a kernel that reads its operands as `t` does. `None`: `t` does more than read, or it is too large.
pub fn system<'s>(s: &System<'s>, t: &Theory) -> Option<System<'s>> {
    let reads = Theory { a: Side::default(), b: Side::default(), ..t.clone() }.is_plain();
    (reads && !t.is_plain() && t.patch.is_none() && !s.alone && s.rows * s.cols * s.k <= WORK).then_some(())?;
    let mut after = s.clone();
    after.a = given(s, t, Which::A)?;
    after.b = given(s, t, Which::B)?;
    let right = Theory::right();
    let one = |at: usize| {
        let (i, j) = (at / s.cols, at % s.cols);
        if s.part[i].is_none() { s.ideal[at] } else { after.sum(&right, i, j).0 + s.bias[j] }
    };
    let ideal: Vec<f64> = (0..s.rows * s.cols).into_par_iter().map(one).collect();
    after.ideal = Cow::Owned(ideal);
    let is_wrong = after.wrong();
    after.of_wrong(is_wrong)
}

fn given(s: &System, t: &Theory, which: Which) -> Option<Given> {
    let (side, g) = match which {
        Which::A => (&t.a, &s.a),
        Which::B => (&t.b, &s.b),
    };
    if side.is_given() {
        return Some(g.clone());
    }
    if let Operand::Quantized(q) = operand(s.scene.evidence.job, which)?.given()
        && let Some(q) = replay::edited(q, side, g, None)
    {
        return Some(Given::of(&Operand::Quantized(q), &g.history, g.rounded));
    }
    let values = (0..g.rows).flat_map(|i| side.row(g, i, 0..g.k).into_owned()).collect();
    Some(Given { rounded: g.rounded, ..Given::values(g.rows, g.k, values) })
}

/// What both read: the second as it was solved after the first.
fn side(first: &Side, second: &Side, after: &Given) -> Side {
    if second.is_given() {
        return first.clone();
    }
    if after.q.is_some() && second.value.is_none() && first.code.is_none() {
        return Side {
            code: second.code.clone(),
            table: second.table.clone().or_else(|| first.table.clone()),
            scale: second.scale.clone().or_else(|| first.scale.clone()),
            zero: second.zero.clone().or_else(|| first.zero.clone()),
            value: None,
        };
    }
    // By what the second makes of it.
    let (second, g) = (second.clone(), after.clone());
    Side { value: Some(std::sync::Arc::new(move |i, k| second.at(&g, i, k))), ..Side::default() }
}

/// Both as one theory, with the words of the second alone.
pub fn joined(first: &Theory, second: &Theory, after: &System) -> Theory {
    Theory {
        a: side(&first.a, &second.a, &after.a),
        b: side(&first.b, &second.b, &after.b),
        fitted: first.fitted || second.fitted,
        slack: first.slack + second.slack,
        freedom: first.freedom + second.freedom,
        ..second.clone()
    }
}
