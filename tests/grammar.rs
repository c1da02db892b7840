//! A sitting of the exam of `qassay power --grammar`: faults drawn from effects, regions and numbers, replayed in plain loops, judged and named.
//! The floors are below what was measured on other seeds; a wrong name and an alarm have none to spare.

use qassay::fault::grammar::draw::question;
use qassay::fault::grammar::{Score, ask};
use rayon::prelude::*;

#[test]
fn drawn_faults_are_named_and_none_is_named_wrongly() {
    let asked: Vec<(bool, String, Score)> = (0..64u64)
        .into_par_iter()
        .map(|number| {
            let two = number % 8 == 7;
            let q = question(2026, number, two).unwrap();
            (two, format!("{number}: {:?} in {:?}", q.effects, q.region), ask(&q).unwrap())
        })
        .collect();
    let alarms: Vec<&String> = asked.iter().filter(|a| a.2.alarm).map(|a| &a.1).collect();
    assert!(alarms.is_empty(), "right results that raise an alarm: {alarms:?}");
    let wrong: Vec<String> = asked.iter().filter(|a| a.2.wrong).map(|a| format!("{}: {}", a.1, a.2.line)).collect();
    assert!(wrong.is_empty(), "wrong names: {wrong:#?}");
    for (two, floor) in [(false, 0.94), (true, 0.6)] {
        let of: Vec<_> = asked.iter().filter(|a| a.0 == two && a.2.changed).collect();
        let named = of.iter().filter(|a| a.2.named).count();
        let missed: Vec<String> = of.iter().filter(|a| !a.2.named).map(|a| format!("{}: {}", a.1, a.2.line)).collect();
        assert!(of.len() >= if two { 6 } else { 40 }, "{} questions change their result", of.len());
        assert!(named as f64 >= floor * of.len() as f64, "{named} of {} named: {missed:#?}", of.len());
    }
}
