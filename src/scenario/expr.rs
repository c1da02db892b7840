//! Predicted ratios, as a scenario file writes them.
//!
//! ```text
//! expr   = term (('*' | '/') term)*
//! term   = number | 'made' | 's(' state ',' index ')' | 'roll(' expr ',' k ')' | 'turn(' expr ',' rows ',' cols ')'
//!        | 'cat(' expr ',' expr ')' | 'rows(' expr ')' | '(' expr ')'
//! index  = k | 'n' | 'n+k' | 'n-k'
//! ```
//!
//! `s(x,i)` are the scales of state x after i updates (recipes without updates: at its i-th quantization), one a tile, n being that
//! count when the step begins; indices below 0 are 0. `made` are the scales that made the bytes. Element e of a vector v is v[e mod
//! length]; e is the operand's tile, or its row inside `rows(…)`. `roll(v,k)[e] = v[e+k]`; `turn(v,R,C)` reads a vector written as
//! R × C as its transpose; `cat(u,v)` is one behind the other.

use crate::{Error, Result};

/// A parsed expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    Number(f64),
    Made,
    Scale { state: String, index: Index },
    Times(Box<Expr>, Box<Expr>),
    Over(Box<Expr>, Box<Expr>),
    Roll(Box<Expr>, usize),
    Turn(Box<Expr>, usize, usize),
    Cat(Box<Expr>, Box<Expr>),
    Rows(Box<Expr>),
}

/// Which version of a scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Index {
    Version(usize),
    /// Relative to the count when the step began.
    Now(i64),
}

/// What an expression can ask for.
pub trait ScaleVersions {
    /// The scales of a state; `None` when that version does not exist.
    fn scale(&self, state: &str, index: Index) -> Option<Vec<f64>>;
    fn made(&self) -> Vec<f64>;
}

/// A value for each tile, or for each row.
#[derive(Clone, Debug, PartialEq)]
pub enum Vector {
    Tiles(Vec<f64>),
    Rows(Vec<f64>),
    /// Both: the product of a vector over tiles and one over rows.
    Both(Vec<f64>, Vec<f64>),
}

impl Vector {
    /// The value at a tile and row.
    pub fn at(&self, tile: usize, row: usize) -> f64 {
        let of = |v: &Vec<f64>, i: usize| v[i % v.len()];
        match self {
            Vector::Tiles(v) => of(v, tile),
            Vector::Rows(v) => of(v, row),
            Vector::Both(t, r) => of(t, tile) * of(r, row),
        }
    }
    fn parts(self) -> (Vec<f64>, Vec<f64>) {
        match self {
            Vector::Tiles(t) => (t, vec![1.0]),
            Vector::Rows(r) => (vec![1.0], r),
            Vector::Both(t, r) => (t, r),
        }
    }
    fn join(self, other: Vector, f: fn(f64, f64) -> f64) -> Vector {
        let zip = |a: Vec<f64>, b: Vec<f64>| -> Vec<f64> {
            (0..a.len().max(b.len())).map(|i| f(a[i % a.len()], b[i % b.len()])).collect()
        };
        let ((t0, r0), (t1, r1)) = (self.parts(), other.parts());
        match (zip(t0, t1), zip(r0, r1)) {
            (t, r) if r == [1.0] => Vector::Tiles(t),
            (t, r) if t == [1.0] => Vector::Rows(r),
            (t, r) => Vector::Both(t, r),
        }
    }
}

impl Expr {
    /// States it names.
    pub fn states(&self) -> Vec<&str> {
        match self {
            Expr::Number(_) | Expr::Made => Vec::new(),
            Expr::Scale { state, .. } => vec![state],
            Expr::Times(a, b) | Expr::Over(a, b) | Expr::Cat(a, b) => [a.states(), b.states()].concat(),
            Expr::Roll(a, _) | Expr::Turn(a, ..) | Expr::Rows(a) => a.states(),
        }
    }

    /// Its value. Errors: a version that does not exist.
    pub fn eval(&self, scales: &dyn ScaleVersions) -> Result<Vector> {
        let list = |e: &Expr| -> Result<Vec<f64>> { Ok(e.eval(scales)?.parts().0) };
        Ok(match self {
            Expr::Number(x) => Vector::Tiles(vec![*x]),
            Expr::Made => Vector::Tiles(scales.made()),
            Expr::Scale { state, index } => Vector::Tiles(scales.scale(state, *index).ok_or_else(|| {
                let found = format!("s({state},{index:?})");
                Error::value("law", found, "a version of the state that exists when the product reads it")
            })?),
            Expr::Times(a, b) => a.eval(scales)?.join(b.eval(scales)?, |a, b| a * b),
            Expr::Over(a, b) => a.eval(scales)?.join(b.eval(scales)?, |a, b| a / b),
            Expr::Roll(e, k) => {
                let v = list(e)?;
                Vector::Tiles((0..v.len()).map(|i| v[(i + k) % v.len()]).collect())
            }
            Expr::Turn(e, rows, cols) => {
                let v = list(e)?;
                Vector::Tiles((0..v.len()).map(|i| v[turned(i, *rows, *cols) % v.len()]).collect())
            }
            Expr::Cat(a, b) => Vector::Tiles([list(a)?, list(b)?].concat()),
            Expr::Rows(e) => Vector::Rows(list(e)?),
        })
    }
}

/// Where place `i` of a vector that a reader takes for `cols × rows` lies when it was written as `rows × cols`... read as its
/// transpose: place (r, c) of the reader's rows × cols grid is at c·rows + r.
pub fn turned(i: usize, rows: usize, cols: usize) -> usize {
    let (r, c) = (i / cols, i % cols);
    c * rows + r
}

impl std::str::FromStr for Expr {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let tokens = tokens(text)?;
        let mut p = Parser { text, tokens: &tokens, at: 0 };
        let e = p.expr()?;
        if p.at < tokens.len() { Err(p.bad()) } else { Ok(e) }
    }
}

fn tokens(text: &str) -> Result<Vec<String>> {
    let mut all: Vec<String> = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c.is_whitespace() {
            continue;
        }
        let mut token = String::from(c);
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        if word(c) {
            while let Some(&next) = chars.peek() {
                // An exponent's sign belongs to its number.
                let signed =
                    matches!(next, '-' | '+') && token.ends_with('e') && token.starts_with(|c: char| c.is_ascii_digit());
                if !(word(next) || signed) {
                    break;
                }
                token.push(next);
                chars.next();
            }
        } else if !"()*/,+-".contains(c) {
            return Err(Error::value("law", text, format!("no `{c}`; see the grammar in data/scenarios/README.md")));
        }
        all.push(token);
    }
    Ok(all)
}

struct Parser<'a> {
    text: &'a str,
    tokens: &'a [String],
    at: usize,
}

impl Parser<'_> {
    fn bad(&self) -> Error {
        let place = self.tokens.get(self.at).map_or("its end".to_string(), |t| format!("`{t}`"));
        let grammar = "numbers, made, s(state,n+k), roll(e,k), turn(e,R,C), cat(e,e), rows(e), joined by * and /";
        Error::value("law", format!("{} at {place}", self.text), grammar)
    }
    fn next(&mut self) -> Result<String> {
        let t = self.tokens.get(self.at).cloned().ok_or_else(|| self.bad())?;
        self.at += 1;
        Ok(t)
    }
    fn expect(&mut self, token: &str) -> Result<()> {
        if self.tokens.get(self.at).is_none_or(|t| t != token) {
            return Err(self.bad());
        }
        self.at += 1;
        Ok(())
    }
    fn number(&mut self) -> Result<usize> {
        let bad = self.bad();
        self.next()?.parse().map_err(|_| bad)
    }
    fn expr(&mut self) -> Result<Expr> {
        let mut left = self.term()?;
        while let Some(op) = self.tokens.get(self.at).filter(|t| *t == "*" || *t == "/").cloned() {
            self.at += 1;
            let right = Box::new(self.term()?);
            left = if op == "*" { Expr::Times(Box::new(left), right) } else { Expr::Over(Box::new(left), right) };
        }
        Ok(left)
    }
    fn term(&mut self) -> Result<Expr> {
        let bad = self.bad();
        let word = self.next()?;
        if word == "(" {
            let e = self.expr()?;
            self.expect(")")?;
            return Ok(e);
        }
        if word == "made" {
            return Ok(Expr::Made);
        }
        if let Ok(x) = word.parse::<f64>() {
            return Ok(Expr::Number(x));
        }
        self.expect("(")?;
        let e = match word.as_str() {
            "s" => {
                let state = self.next()?;
                self.expect(",")?;
                Expr::Scale { state, index: self.index()? }
            }
            "roll" => {
                let e = Box::new(self.expr()?);
                self.expect(",")?;
                Expr::Roll(e, self.number()?)
            }
            "turn" => {
                let e = Box::new(self.expr()?);
                self.expect(",")?;
                let rows = self.number()?;
                self.expect(",")?;
                Expr::Turn(e, rows, self.number()?)
            }
            "cat" => {
                let a = Box::new(self.expr()?);
                self.expect(",")?;
                Expr::Cat(a, Box::new(self.expr()?))
            }
            "rows" => Expr::Rows(Box::new(self.expr()?)),
            _ => return Err(bad),
        };
        self.expect(")")?;
        Ok(e)
    }
    fn index(&mut self) -> Result<Index> {
        let bad = self.bad();
        let word = self.next()?;
        if word != "n" {
            return word.parse().map(Index::Version).map_err(|_| bad);
        }
        let sign = match self.tokens.get(self.at).map(String::as_str) {
            Some("+") => 1,
            Some("-") => -1,
            _ => return Ok(Index::Now(0)),
        };
        self.at += 1;
        Ok(Index::Now(sign * self.number()? as i64))
    }
}
