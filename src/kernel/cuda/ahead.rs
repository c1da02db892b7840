//! Kernels of the judge that are compiled and loaded before they are launched: cases that run together come to each of them at the same time, one
//! compiles it, and all wait, a dozen times one after the other.

use super::afar;
use super::contract::Contract;
use super::inputs;
use super::judge::{bound, cast, counted, elements, product};
use super::launch::gpu;
use super::model::{self, takes};
use super::options::define;
use super::reference;
use crate::kernel::Ahead;
use crate::model::Accumulator;
use std::sync::Mutex;

/// Source, entry and options.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Of {
    source: &'static str,
    entry: &'static str,
    defines: Vec<String>,
}

fn of<C: Contract>(defines: &[String]) -> Of {
    Of { source: C::SOURCE, entry: C::ENTRIES[0], defines: defines.to_vec() }
}

/// What is counted of a result that has scales, or none: the longest to compile first.
fn counts(scaled: bool) -> Vec<Of> {
    let scaled = [define("SCALED", scaled)];
    let pass = |n: usize| [&scaled[..], &[define("PASS", n)]].concat();
    vec![
        of::<counted::RanksOf>(&scaled),
        of::<counted::ElementsOf>(&scaled),
        of::<counted::PowerOf>(&scaled),
        of::<counted::SumsOf>(&pass(0)),
        of::<counted::SumsOf>(&pass(1)),
        of::<counted::DrawnOf>(&scaled),
        of::<elements::Widen>(&[]),
    ]
}

fn references() -> Vec<Of> {
    vec![
        of::<reference::ExactOf>(&[]),
        of::<reference::SumsOf>(&[]),
        of::<reference::LanesOf>(&[]),
        of::<reference::DigitsOf>(&[]),
        of::<reference::Mend>(&[]),
        of::<reference::Width>(&[]),
    ]
}

/// The device model of e4m3 by wgmma.
fn modelled(accumulator: &Accumulator) -> Vec<Of> {
    let Some(promoted) = takes(accumulator) else { return Vec::new() };
    let [sums, side_a, side_b] = model::defines(promoted);
    vec![
        of::<model::Arguments>(&sums),
        of::<model::PlanesOf>(&side_a),
        of::<model::PlanesOf>(&side_b),
        of::<model::Scaled>(&sums),
    ]
}

/// What a case of this kind launches beside its own kernel.
fn kernels(what: &Ahead) -> Vec<Of> {
    let each = |each: bool| [define("EACH", each)];
    match what {
        Ahead::Inputs => vec![of::<inputs::Arguments>(&[]), of::<afar::AmaxOf>(&[]), of::<afar::CodesOf>(&[])],
        Ahead::Cast => [counts(true), vec![of::<cast::CodesOf>(&[])]].concat(),
        Ahead::References => references(),
        Ahead::Model(accumulator) => modelled(accumulator),
        Ahead::Product => {
            let bound =
                [of::<bound::BoundOf>(&each(true)), of::<bound::BoundOf>(&each(false)), of::<bound::AmaxOf>(&each(false))];
            [&counts(false)[..], &bound, &[of::<product::ModelOf>(&[])]].concat()
        }
    }
}

/// Begins with those that were not begun yet, each on a thread of its own. What goes wrong is found out by who launches it.
pub fn begin(what: &[Ahead]) {
    static BEGUN: Mutex<Vec<Of>> = Mutex::new(Vec::new());
    for of in what.iter().flat_map(kernels) {
        let mut begun = BEGUN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if begun.contains(&of) {
            continue;
        }
        begun.push(of.clone());
        drop(begun);
        std::thread::spawn(move || drop(gpu().and_then(|gpu| gpu.prepare(of.source, of.entry, &of.defines))));
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::SOURCES;
    use super::*;

    #[test]
    fn what_is_made_ahead_is_in_the_sources() {
        let all = ["hopper_wgmma", "hopper_wgmma@128", "int32"].map(|a| Ahead::Model(a.parse().unwrap()));
        let all: Vec<Ahead> = [Ahead::Inputs, Ahead::Cast, Ahead::References, Ahead::Product].into_iter().chain(all).collect();
        let kernels: Vec<Of> = all.iter().flat_map(kernels).collect();
        for of in &kernels {
            let source = SOURCES.iter().find(|s| s.name == of.source).unwrap();
            source.knows(&of.defines).unwrap();
            assert_eq!(source.only(of.entry).matches("extern \"C\" __global__").count(), 1, "{of:?}");
        }
        let promoted = |of: &&Of| of.entry == "model_wgmma" && of.defines.contains(&"-DPROMOTE=1".to_string());
        assert_eq!((kernels.len(), kernels.iter().filter(promoted).count()), (3 + 8 + 6 + 11 + 8, 1));
    }
}
