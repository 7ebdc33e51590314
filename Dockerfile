# Two images from one tree: `web` serves pages, `host` runs builds and llama-servers.
# bookworm: its gcc 12 is one that the CUDA 12 compilers accept.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS assets
WORKDIR /assets
COPY requirements/assets.txt requirements/
COPY package.json package-lock.json deploy/front_end.sh ./
RUN python -m venv .venv && sh front_end.sh .venv/bin/python

FROM ${PYTHON_IMAGE} AS build
WORKDIR /app
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
COPY requirements/demo.txt requirements/
RUN python -m venv .venv && .venv/bin/python -m pip install --require-hashes -r requirements/demo.txt
COPY . .
COPY --from=assets /assets/node_modules node_modules
# The data folder of this step, with the key that settings make in it, does not leave this layer.
RUN .venv/bin/python -m pip install --no-deps --no-build-isolation -e . \
    && if [ -n "$(find controlpanel/locale -name '*.po' 2>/dev/null)" ]; then \
        .venv/bin/pybabel compile -d controlpanel/locale -D django; fi \
    && PANEL_DATA=/tmp/data .venv/bin/python manage.py collectstatic --noinput --verbosity 0 \
    && rm -rf node_modules /tmp/data

FROM ${PYTHON_IMAGE} AS runtime
RUN useradd --uid 10001 --create-home panel \
    && install -d -o panel -g panel -m 0700 /data
ENV PATH=/app/.venv/bin:$PATH \
    PANEL_DATA=/data \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /app

FROM runtime AS web
COPY --from=build /app /app
USER panel
VOLUME /data
EXPOSE 8800
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["python", "deploy/healthcheck.py", "web"]
CMD ["uvicorn", "controlpanel.asgi:application", "--host", "0.0.0.0", "--port", "8800", \
    "--lifespan", "off", "--timeout-graceful-shutdown", "3"]

FROM runtime AS host
RUN apt-get update \
    && apt-get install -y --no-install-recommends build-essential ca-certificates cmake git libgomp1 libssl-dev \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /app /app
USER panel
VOLUME /data
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["python", "deploy/healthcheck.py", "host"]
CMD ["python", "manage.py", "up", "--host-only"]
