//! A bundle audited: its codes against its values, its product against its scale_inv; as lines, and scale by scale and element by element.

use super::audit::{Audit, Finding, audit};
use super::reading::{Reading, reading};
use crate::assay::row::number;
use crate::bundle::{Bundle, Codes};
use crate::job::Data;
use crate::op::Op;
use crate::{Error, Granularity, QTensor, Result, Tensor};
use std::path::Path;

/// What is said of one tensor of codes.
#[derive(Clone, Debug)]
pub struct OfTensor {
    /// `a`, `b`, `b, group 1`, `out`.
    pub name: String,
    pub granularity: Granularity,
    pub cols: usize,
    pub audit: Audit,
}

/// What is said of a bundle.
#[derive(Clone, Debug)]
pub struct OfBundle {
    /// Every quantized tensor whose values the bundle has, by name: operands a and b (and their groups), the result of a cast.
    pub tensors: Vec<OfTensor>,
    /// Of a product of codes: which scale_inv its kernel read.
    pub read: Option<Reading>,
    /// Columns of that product.
    pub cols: usize,
}

impl OfBundle {
    /// Whether everything belongs together.
    pub fn belongs(&self) -> bool {
        self.tensors.iter().all(|t| t.audit.finding == Finding::Belongs) && self.read.as_ref().is_none_or(Reading::belongs)
    }

    /// One line a tensor, and one for the product.
    pub fn lines(&self) -> Vec<String> {
        let tensors = self.tensors.iter().map(|t| format!("{}: {} ({} scales)", t.name, t.audit.words(), t.granularity));
        tensors.chain(self.read.as_ref().map(|r| format!("product: {}", r.words()))).collect()
    }

    /// Every scale as a row of `audit.csv` ([`SCALES`]), without the file: r = s·scale_inv is certainly between `r_low` and `r_high`. Of
    /// the product, scale_inv is not known and r is how many times the stored one was read.
    pub fn scales(&self) -> Vec<Vec<String>> {
        let tile = |t: &OfTensor, i: usize| {
            let x = t.audit.tiles[i];
            let (low, high) = x.r();
            let (granularity, finding) = (t.granularity.to_string(), x.finding.name().to_string());
            vec![t.name.clone(), granularity, i.to_string(), number(x.scale_inv), number(low), number(high), finding]
        };
        let mut all: Vec<Vec<String>> =
            self.tensors.iter().flat_map(|t| (0..t.audit.tiles.len()).map(move |i| tile(t, i))).collect();
        for (read, (i, r)) in self.read.iter().flat_map(|x| x.r.iter().enumerate().map(move |r| (x, r))) {
            let finding = match read.region {
                None => Finding::OtherValues,
                Some(_) if r.0 <= 1.0 && 1.0 <= r.1 => Finding::Belongs,
                Some(_) => Finding::Stale,
            };
            let region = read.region.map_or("none", |r| r.name());
            let cells = ["product", region, &i.to_string(), "", &number(r.0), &number(r.1), finding.name()];
            all.push(cells.map(String::from).into());
        }
        all
    }

    /// Every element as a row of `lost.csv` ([`LOST`]), without the file.
    pub fn lost(&self) -> Vec<Vec<String>> {
        let all = self.tensors.iter().map(|t| (t.name.as_str(), t.cols, &t.audit.lost));
        let all = all.chain(self.read.as_ref().map(|r| ("product", self.cols, &r.lost)));
        let row = |name: &str, cols: usize, i: usize, x: f64| {
            vec![name.to_string(), (i / cols).to_string(), (i % cols).to_string(), number(x)]
        };
        all.flat_map(|(name, cols, lost)| lost.iter().enumerate().map(move |(i, x)| row(name, cols.max(1), i, *x))).collect()
    }
}

/// Puts the audit's lines beside the diagnosis of a failure. What cannot be audited has no line.
pub fn beside(bundle: &Bundle, answer: &mut crate::bundle::assay::Answer) {
    if let Some(d) = &mut answer.diagnosis {
        d.audit = of(bundle).map_or_else(|_| Vec::new(), |a| a.lines());
    }
}

/// Audits a bundle: its codes against its values, its product against its scale_inv. Errors: those of [`Bundle::read`] and of
/// [`reading`]; nothing in it can be audited.
pub fn bundle(path: &Path) -> Result<OfBundle> {
    of(&Bundle::read(path)?)
}

/// As [`bundle`], of one that has been read.
pub fn of(b: &Bundle) -> Result<OfBundle> {
    let of = |name: String, q: &QTensor, x: &Tensor, history: &[f32]| -> Result<OfTensor> {
        Ok(OfTensor { name, granularity: q.granularity(), cols: q.cols(), audit: audit(q, x, history)? })
    };
    let mut tensors = Vec::new();
    for (name, side) in [("a", &b.a), ("b", &b.b)] {
        match (&side.high, &side.codes) {
            (Some(x), Some(Codes::Whole(q))) => tensors.push(of(name.to_string(), q, x, &side.history)?),
            (Some(x), Some(Codes::Groups(groups))) => {
                let mut from = 0;
                for (e, q) in groups.iter().enumerate().filter(|g| g.1.cols() > 0) {
                    let columns: Vec<f32> = (0..x.rows()).flat_map(|i| &x.row(i)[from..from + q.cols()]).copied().collect();
                    from += q.cols();
                    let x = Tensor::new(x.dtype(), x.rows(), q.cols(), columns)?;
                    tensors.push(of(format!("{name}, group {e}"), q, &x, &side.history)?);
                }
            }
            _ => {}
        }
    }
    if let (Op::Cast | Op::CastTranspose, Some(x), Data::Quantized(q)) = (b.meta.op, &b.a.high, &b.out.d) {
        tensors.push(of("out".into(), q, x, &b.a.history)?);
    }
    let read = reading(b)?;
    if tensors.is_empty() && read.is_none() {
        return Err(Error::BadFile {
            path: b.path.clone(),
            found: "neither codes beside the values they stand for, nor a product of codes".into(),
            expected: "a and a.codes (or b), a cast with a and out.codes, or a product with a.codes and b.codes".into(),
        });
    }
    let cols = match &b.out.d {
        Data::High(t) => t.cols(),
        Data::Quantized(q) => q.cols(),
    };
    Ok(OfBundle { tensors, read, cols })
}

/// Columns of `audit.csv` and of `lost.csv`.
pub const SCALES: [&str; 8] = ["file", "what", "granularity", "part", "scale_inv", "r_low", "r_high", "finding"];
pub const LOST: [&str; 5] = ["file", "what", "row", "col", "lost"];

/// Writes `audit.csv` and `lost.csv` of several bundles into `out`. Errors: the disk's.
pub fn write(out: &Path, audited: &[(std::path::PathBuf, OfBundle)]) -> Result<()> {
    std::fs::create_dir_all(out).map_err(|e| Error::io(out, e, "give another folder with --out"))?;
    for (name, head) in [("audit.csv", &SCALES[..]), ("lost.csv", &LOST[..])] {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let mut written = writer.write_record(head);
        for (file, of) in audited {
            let rows = if name == "audit.csv" { of.scales() } else { of.lost() };
            let file = file.display().to_string();
            written = written.and_then(|()| rows.iter().try_for_each(|r| writer.write_record(std::iter::once(&file).chain(r))));
        }
        written.expect("writing to memory");
        let path = out.join(name);
        let text = writer.into_inner().expect("writing to memory");
        std::fs::write(&path, text).map_err(|e| Error::io(&path, e, "make room, then audit again"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::reading::Shared;
    use super::*;

    /// Two rows of three.
    #[test]
    fn each_element_that_is_lost_is_told_by_its_place() {
        let audit = Audit {
            finding: Finding::Stale,
            tiles: Vec::new(),
            read_from: Vec::new(),
            made_by: Vec::new(),
            order: None,
            clipped: 0,
            flushed: 0,
            lost: vec![0.0, 0.5, 0.0, 0.0, -2.0, 0.25],
        };
        let tensors = vec![OfTensor { name: "a".into(), granularity: Granularity::Tensor, cols: 3, audit }];
        let rows = OfBundle { tensors, read: None, cols: 0 }.lost();
        let places = [("0", "0"), ("0", "1"), ("0", "2"), ("1", "0"), ("1", "1"), ("1", "2")];
        let want: Vec<Vec<String>> = places
            .iter()
            .zip([0.0, 0.5, 0.0, 0.0, -2.0, 0.25])
            .map(|((i, j), x)| vec!["a".to_string(), i.to_string(), j.to_string(), number(x)])
            .collect();
        assert_eq!(rows, want);
    }

    #[test]
    fn each_table_has_rows_of_its_own_columns() {
        let out = tempfile::tempdir().unwrap();
        let read = Reading { region: Some(Shared::Tensor), r: vec![(0.9, 1.1)], earlier: Vec::new(), lost: vec![0.25, 0.0] };
        let of = OfBundle { tensors: Vec::new(), read: Some(read), cols: 2 };
        write(out.path(), &[("x.safetensors".into(), of)]).unwrap();
        for (name, head, count) in [("audit.csv", &SCALES[..], 1), ("lost.csv", &LOST[..], 2)] {
            let text = std::fs::read_to_string(out.path().join(name)).unwrap();
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!((lines[0], lines.len()), (head.join(",").as_str(), 1 + count), "{text}");
            assert!(
                lines[1..].iter().all(|l| l.starts_with("x.safetensors,") && l.matches(',').count() + 1 == head.len()),
                "{text}"
            );
        }
    }
}
