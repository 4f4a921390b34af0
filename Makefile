# Two commands do everything: `make run` the main job, `make test` the tests.
PYTHON ?= python3
BIN := .venv/bin
.PHONY: run test setup environment train vllm ui models record clean distclean help
help: ## what there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

run: setup ## the graph on data/raw with embedded models, and the report
	@$(BIN)/headrace run

# Two at once: they wait for half of their time.
test: setup ## all tests
	@$(BIN)/python -m pytest -n 2 --no-loadscope-reorder

setup: ## the environment in .venv, by uv when it is there, else by pip
	@sha256sum --status -c .venv/.ready 2>/dev/null || $(MAKE) -s environment

# .venv/.ready is written last and names what was installed: a changed lock, or a killed install, does it again.
environment:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info[:2] == (3, 11) else "Python 3.11 is needed, this is " + sys.version.split()[0] + "; name one: make PYTHON=python3.11")'
	@echo "installing the environment in .venv (2.5 GB, some minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@if command -v uv >/dev/null; then \
	  uv pip install -q --python $(BIN)/python --no-deps --compile-bytecode -r requirements.lock && \
	  uv pip install -q --python $(BIN)/python --no-deps --no-build-isolation -e .; \
	else \
	  $(BIN)/python -m pip install -q --no-deps -r requirements.lock && \
	  $(BIN)/python -m pip install -q --no-deps --no-build-isolation -e .; \
	fi
	@sha256sum requirements.lock pyproject.toml > .venv/.ready

ui: setup ## Dagster and MLflow on loopback
	@$(BIN)/headrace ui

models: setup ## the larger embedded models (Qwen2.5-Coder 0.5B and 1.5B, 1.6 GB)
	@$(BIN)/headrace models fetch

# torch's CPU wheels may want an index of their own: UV_EXTRA_INDEX_URL, or PIP_EXTRA_INDEX_URL for pip.
train: setup ## torch and transformers beside it, to train encoders (1 GB)
	@sha256sum --status -c .venv/.train 2>/dev/null || { \
	  echo "installing the extra train in .venv (1 GB, some minutes)" && rm -f .venv/.train && \
	  if command -v uv >/dev/null; then \
	    UV_FIND_LINKS="$${UV_FIND_LINKS:-$$PIP_FIND_LINKS}" \
	      uv pip install -q --python $(BIN)/python --no-deps --compile-bytecode -r requirements-train.lock; \
	  else \
	    $(BIN)/python -m pip install -q --no-deps -r requirements-train.lock; \
	  fi && sha256sum requirements-train.lock requirements.lock > .venv/.train; }

# On a GPU: an environment of your own with `vllm` and `gguf`, named in llm.vllm.python of params.yaml.
VLLM := .venv-vllm
vllm: ## vLLM for CPU in .venv-vllm, an environment of its own; for a GPU see llm.vllm.python
	@sha256sum --status -c $(VLLM)/.ready 2>/dev/null || { \
	  echo "installing vLLM in $(VLLM) (3 GB, some minutes)" && rm -f $(VLLM)/.ready && \
	  { test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM); } && \
	  if command -v uv >/dev/null; then \
	    UV_FIND_LINKS="$${UV_FIND_LINKS:-$$PIP_FIND_LINKS}" \
	      uv pip install -q --python $(VLLM)/bin/python --no-deps --compile-bytecode -r requirements-vllm.lock; \
	  else \
	    $(VLLM)/bin/python -m pip install -q --no-deps -r requirements-vllm.lock; \
	  fi && sha256sum requirements-vllm.lock > $(VLLM)/.ready; }

record: setup ## asks the 1.5B model anew what the recorded answers of the tests lack
	@$(BIN)/headrace models fetch qwen2.5-coder-1.5b
	@$(BIN)/python tests/recorded/recording.py

clean: ## takes away what runs made; never the response store
	@rm -rf data/evergreen data/egoavu data/trit data/cbu data/training data/evaluation data/answers reports dvc.lock
	@rm -rf .dvc/cache .dvc/tmp
	@if [ -d .headrace ]; then find .headrace -mindepth 1 -maxdepth 1 ! -name 'responses.sqlite*' -exec rm -rf {} +; fi

distclean: clean ## and the environments
	@rm -rf .venv $(VLLM) *.egg-info
