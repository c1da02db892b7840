//! Takes what a first fault reads as right, solves a second fault as if it were the only one, and joins the two.

use super::given::{Given, Side};
use super::replay;
use super::system::{System, Theory};
use crate::fault::edit::{Which, operand};
use crate::job::Operand;
use crate::parallel;
use std::borrow::Cow;
use std::sync::Arc;

/// Multiply-adds of a product that is computed again.
const WORK: usize = 1 << 28;

/// The systems in which what `t` does is right: of a kernel that reads its operands as `t` does, that sums K as `t` does, or that finishes
/// sums as `t` does. None: `t` does more than one of these, or it is too large.
pub fn systems<'s>(s: &System<'s>, t: &Theory) -> Vec<System<'s>> {
    if t.patch.is_some() || t.region.is_some() || t.is_plain() || s.alone || s.rows * s.cols * s.k > WORK {
        return Vec::new();
    }
    let reads = Theory { a: Side::default(), b: Side::default(), ..t.clone() }.is_plain();
    if reads {
        return read(s, t).into_iter().collect();
    }
    if (Theory { k: None, ..t.clone() }).is_plain() {
        // The coefficients as values of either operand, so that the other still has its codes.
        return [Which::B, Which::A].into_iter().filter_map(|side| counted(s, t, side)).collect();
    }
    if (Theory { finish: None, ..t.clone() }).is_plain() {
        return finished(s, t).into_iter().collect();
    }
    Vec::new()
}

fn read<'s>(s: &System<'s>, t: &Theory) -> Option<System<'s>> {
    let mut after = s.clone();
    after.memo = None;
    after.a = given(s, t, Which::A)?;
    after.b = given(s, t, Which::B)?;
    summed(after)
}

fn counted<'s>(s: &System<'s>, t: &Theory, side: Which) -> Option<System<'s>> {
    let c = t.k.as_ref()?;
    let mut after = s.clone();
    after.memo = None;
    let g = s.given(side);
    let values = g.values.iter().enumerate().map(|(at, v)| v * c[at % g.k]).collect();
    let new = Arc::new(Given { rounded: g.rounded, ..Given::values(g.rows, g.k, values) });
    match side {
        Which::A => after.a = new,
        Which::B => after.b = new,
    }
    summed(after)
}

fn finished<'s>(s: &System<'s>, t: &Theory) -> Option<System<'s>> {
    let f = t.finish.as_ref()?;
    let mut after = s.clone();
    let one = |at: usize| f(at / s.cols, at % s.cols, s.ideal[at] - s.bias.at(at / s.cols, at % s.cols));
    after.ideal = Cow::Owned(parallel::collect(s.rows * s.cols, one));
    after.right = Arc::default();
    let is_wrong = after.wrong();
    after.of_wrong(is_wrong)
}

/// With the result that its operands make.
fn summed(mut after: System) -> Option<System> {
    let right = Theory::right();
    let one = |at: usize| {
        let (i, j) = (at / after.cols, at % after.cols);
        if after.part[i].is_none() { after.ideal[at] } else { after.sum(&right, i, j).0 + after.bias.at(i, j) }
    };
    let ideal: Vec<f64> = parallel::collect(after.rows * after.cols, one);
    after.ideal = Cow::Owned(ideal);
    after.right = Arc::default();
    let is_wrong = after.wrong();
    after.of_wrong(is_wrong)
}

fn given(s: &System, t: &Theory, which: Which) -> Option<Arc<Given>> {
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
        return Some(Arc::new(Given::of(&Operand::Quantized(q), &g.history, g.rounded)));
    }
    let values = (0..g.rows).flat_map(|i| side.row(g, i, 0..g.k).into_owned()).collect();
    Some(Arc::new(Given { rounded: g.rounded, ..Given::values(g.rows, g.k, values) }))
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
            every: 0,
            value: None,
            all: None,
        };
    }
    // By what the second makes of it.
    let (second, g) = (second.clone(), after.clone());
    Side { value: Some(std::sync::Arc::new(move |i, k| second.at(&g, i, k))), ..Side::default() }
}

/// Both as one theory, with the words of the second alone. `None`: the second changes what the first made of the sums.
pub fn joined(s: &System, first: &Theory, second: &Theory, after: &System) -> Option<Theory> {
    let both = Theory {
        // What it sums is told by operands that the first changed.
        id: 0,
        fitted: first.fitted || second.fitted,
        slack: first.slack + second.slack,
        freedom: first.freedom + second.freedom,
        ..second.clone()
    };
    if first.finish.is_some() {
        return (second.sums_right() && second.finish.is_none()).then(|| Theory { finish: first.finish.clone(), ..both });
    }
    if first.k.is_some() {
        second.k.is_none().then_some(())?;
        // What the second reads of the operand that has the coefficients has them already.
        let counts = |x: &Given, y: &Given| !std::sync::Arc::ptr_eq(&x.values, &y.values);
        let taken = counts(&after.a, &s.a) && !second.a.is_given() || counts(&after.b, &s.b) && !second.b.is_given();
        let k = first.k.clone().filter(|_| !taken);
        return Some(Theory { k, a: side(&first.a, &second.a, &after.a), b: side(&first.b, &second.b, &after.b), ..both });
    }
    Some(Theory { a: side(&first.a, &second.a, &after.a), b: side(&first.b, &second.b, &after.b), ..both })
}
