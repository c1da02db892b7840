# The commands people type. `make help` lists them.
.PHONY: help report test setup evcxr fmt clippy unit kernels program docs check notebooks lab lab-picture jupyterlab bench clean package python wheel-manylinux

help:
	@echo "make report   run the standard sweep and write its report"
	@echo "make test     set up what is needed, then run everything that CI runs"
	@echo "make notebooks  execute the notebooks and compare them with what is committed"
	@echo "make lab      open JupyterLab on the notebooks"
	@echo "make docs     build the pages of docs/ as a book: target/book/index.html"
	@echo "make python   build the wheel and run its tests"
	@echo "make wheel-manylinux  build the wheel for systems as old as RHEL 7 and run its tests"
	@echo "make bench    time the codecs on this machine"
	@echo "make clean    remove build outputs, reports and the local environment"

report:
	cargo run --release -- run

# Step by step, so that the first that fails is the last thing printed. evcxr takes 200 seconds of a core that only the notebooks need: it fills
# what the first steps leave idle. The notebooks wait for rustc and the other steps for browsers, processes and a disk: together they leave no core idle.
test: setup fmt
	$(MAKE) --jobs=2 --output-sync=line evcxr first
	$(MAKE) --jobs=2 --output-sync=line notebooks rest

# The program is one unit of code: one core compiles it while the unit tests run. Cargo builds one thing at a time, so theirs begin first.
.PHONY: first rest built-later
first:
	$(MAKE) --jobs=1 clippy
	$(MAKE) --jobs=2 --output-sync=target unit built-later
rest:
	$(MAKE) --jobs=1 kernels program docs package python check

setup:
	scripts/setup.sh

# The Rust kernel of Jupyter.
evcxr:
	nice -n 19 scripts/evcxr.sh

fmt:
	cargo fmt --check

clippy:
	cargo clippy --release --all-targets --features notebook -- -D warnings
	cargo clippy --release --lib --no-default-features -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --release --no-deps --quiet

# Unit tests with overflow checks and debug assertions: this crate only, beside the dependencies that the program has.
OF_CRATE = profile.release.package.qassay
CHECKED = --release --config '$(OF_CRATE).codegen-units=64' --config '$(OF_CRATE).strip="none"' \
	--config '$(OF_CRATE).overflow-checks=true' --config '$(OF_CRATE).debug-assertions=true'
unit:
	cargo test $(CHECKED) --lib --features notebook

# The program and the whole-program tests. The tests' own dependencies switch on no feature of what the program is built of (Cargo.toml), so that
# `cargo build --release` is this build.
PROGRAM = $${CARGO_TARGET_DIR:-target}/release/qassay
.PHONY: built
built:
	cargo test --release --test '*' --no-run
built-later:
	sleep 5
	$(MAKE) built

# Every CUDA kernel to machine code, with no GPU.
kernels: built
	$(PROGRAM) compile --arch sm_89,sm_90a,sm_100a

# Doc, whole-program and exhaustive tests, on the library and the program that people have. Half of the files wait for a browser, for processes
# or for a disk: two lanes by the first letter, each printed whole when it ends.
program: built
	cargo test --release --doc
	$(MAKE) --jobs=2 --output-sync=target whole-a-e whole-f-z

whole-%:
	cargo test --release --test '[$*]*'

# The pages of docs/ as a book in target/book. tests/links.rs follows their links.
docs: setup
	.venv/bin/mkdocs build --strict --quiet -f scripts/mkdocs.yml

# The crate as a registry would have it: its size, and that it builds.
package:
	scripts/package.sh

# The wheel, in clean environments of the oldest and the newest Python here, with the source tree hidden.
python:
	scripts/python_tests.sh

# The wheel of a release: linked by zig against glibc 2.17, and tested as the other is. Not in `make test`: zig is a download of 90 MB.
wheel-manylinux:
	scripts/python_tests.sh manylinux2014

# Every case of the sweeps that have a baseline, to the bit and to the last digit of its judgement; never writes to it.
check: built
	$(PROGRAM) check --strict

# Every notebook in a new kernel, outputs compared; scripts/notebooks.py --accept writes them.
notebooks: setup evcxr
	.venv/bin/python scripts/notebooks_test.py
	.venv/bin/python scripts/notebooks.py

# JupyterLab is not needed by the tests, so it is installed here.
lab: jupyterlab
	.venv/bin/python scripts/notebooks.py --lab

# By hand: opens a notebook in headless Chromium, looks whether it draws and sorts without a script error, takes the README's picture.
lab-picture: jupyterlab
	.venv/bin/python scripts/lab_picture.py 01_first_assay.ipynb notebooks/lab.png notebooks/lab_dark.png

jupyterlab: setup evcxr
	.venv/bin/python -c 'import jupyterlab' 2>/dev/null || .venv/bin/pip install --quiet --disable-pip-version-check jupyterlab==4.6.6

bench:
	cargo run --release -- bench codec

clean:
	cargo clean
	rm -rf .venv .tools
	find reports -mindepth 1 -maxdepth 1 ! -name README.md ! -name example -exec rm -rf {} +
