# A broker: `docker build -t tierlog .`, then `docker run -p 9092:9092 -p 8080:8080 -v tierlog:/var/lib/tierlog
# -e TIERLOG_KAFKA__ADVERTISED_HOST=127.0.0.1 tierlog serve --secure`. Without the last two words whoever reaches the ports may
# do everything.
# It runs as a user without rights, and with `--read-only`: all it writes is in /var/lib/tierlog and /tmp.

FROM python:3.11-slim-bookworm AS build
WORKDIR /source
COPY constraints.txt ./
RUN python -m venv /opt/tierlog \
 && /opt/tierlog/bin/pip install --no-cache-dir -c constraints.txt setuptools wheel
COPY pyproject.toml MANIFEST.in README.md LICENSE ./
COPY deploy/wheel deploy/wheel
COPY tierlog tierlog
COPY gateway gateway
COPY offloader offloader
COPY spark spark
COPY cold_tier cold_tier
COPY hot_tier hot_tier
RUN /opt/tierlog/bin/pip install --no-cache-dir -c constraints.txt --no-build-isolation .
# Kernels for any processor of this architecture: the image is built on one machine and runs on others.
ENV NUMBA_CPU_NAME=generic NUMBA_CACHE_DIR=/opt/tierlog/kernels
RUN /opt/tierlog/bin/python -c 'import tierlog.broker'

FROM python:3.11-slim-bookworm
RUN groupadd --gid 10001 tierlog \
 && useradd --uid 10001 --gid tierlog --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin tierlog \
 && install -d -o tierlog -g tierlog -m 0750 /var/lib/tierlog
COPY --from=build /opt/tierlog /opt/tierlog
ENV PATH=/opt/tierlog/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    NUMBA_CPU_NAME=generic \
    NUMBA_CACHE_DIR=/opt/tierlog/kernels \
    TIERLOG_LOG__DATA_DIR=/var/lib/tierlog \
    TIERLOG_KAFKA__HOST=0.0.0.0 \
    TIERLOG_HTTP__HOST=0.0.0.0 \
    TIERLOG_HTTP__PORT=8080
USER 10001:10001
WORKDIR /var/lib/tierlog
VOLUME /var/lib/tierlog
EXPOSE 9092 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 \
  CMD ["python", "-c", "import os, ssl, urllib.request as u; e = os.environ; s = 's' * (e.get('TIERLOG_LISTENER__HTTP__PROTOCOL') == 'https' or os.path.exists(e['TIERLOG_LOG__DATA_DIR'] + '/secure')); u.urlopen(f'http{s}://127.0.0.1:{e[\"TIERLOG_HTTP__PORT\"]}/readyz', timeout=4, context=ssl._create_unverified_context() if s else None)"]
ENTRYPOINT ["tierlog"]
CMD ["serve"]
