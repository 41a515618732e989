# Ottla in a container: docs/image.md. Built from a clone, `docker build -t ottla .`; works with any builder of OCI images.

FROM python:3.12-slim AS build
COPY pyproject.toml README.md LICENSE /src/
COPY ottla /src/ottla
COPY pyspark_ottla /src/pyspark_ottla
COPY packaging/image/build-requirements.txt packaging/image/requirements.txt /src/packaging/image/
# Every package is pinned by its hash (scripts/lock-image), also those of a build.
RUN python3 -m venv /opt/ottla \
 && /opt/ottla/bin/pip install --no-cache-dir --disable-pip-version-check --no-build-isolation --require-hashes -r /src/packaging/image/build-requirements.txt \
 && /opt/ottla/bin/pip install --no-cache-dir --disable-pip-version-check --no-build-isolation --require-hashes -r /src/packaging/image/requirements.txt \
 && /opt/ottla/bin/pip install --no-cache-dir --disable-pip-version-check --no-build-isolation --no-deps /src \
 && /opt/ottla/bin/pip uninstall --yes --quiet --disable-pip-version-check wheel setuptools pip

FROM python:3.12-slim
# Group 0 owns the data: a container with any user id, but no group, belongs to group 0 and can write.
RUN useradd --uid 1000 --gid 0 --no-create-home --home-dir /var/lib/ottla --shell /usr/sbin/nologin ottla
# A new volume starts as a copy of the directory that it is mounted over, owner included. It may also be mounted at `data`, or at the place in Kafka's own image.
RUN install -d -o 1000 -g 0 -m 0775 /var/lib/ottla /var/lib/ottla/data /var/lib/kafka/data && install -d -m 0755 /etc/ottla
# The base image has its standard library without bytecode, and the user may not write any: each start would compile
# a hundred modules. Packages that pip has installed are compiled.
RUN python3 -m compileall -q -x '/(site-packages|dist-packages|test|idlelib|tkinter|turtledemo|lib2to3|ensurepip|pydoc_data)/' /usr/local/lib/python3.*
COPY --from=build /opt/ottla /opt/ottla
COPY packaging/image/image.properties /usr/local/share/ottla/image.properties
COPY packaging/image/entrypoint.sh /usr/local/bin/ottla-entrypoint
# Where programs written for Kafka's images find what they call: Testcontainers, health checks, init containers.
COPY packaging/image/kafka /
# Not with COPY --chmod, which older builders do not support; a checkout on Windows has no modes.
RUN chmod 0755 /usr/local/bin/ottla-entrypoint /usr/local/bin/kafka-storage /usr/local/bin/zookeeper-server-start /usr/local/bin/cub \
 && chmod 0755 /etc/kafka/docker/run /opt/kafka/bin/*.sh \
 && ln -s /opt/kafka/bin/kafka-topics.sh /opt/kafka/bin/kafka-broker-api-versions.sh /usr/local/bin/ \
 && ln -s /opt/kafka/bin/kafka-topics.sh /usr/local/bin/kafka-topics \
 && ln -s /opt/kafka/bin/kafka-broker-api-versions.sh /usr/local/bin/kafka-broker-api-versions \
 && install -d -m 0755 /opt/bitnami/kafka && ln -s /opt/kafka/bin /opt/bitnami/kafka/bin
# Testcontainers rewrites some of these scripts, as the user of the container.
RUN chmod -R 0775 /etc/confluent/docker && chown -R 1000:0 /etc/confluent/docker
ENV PATH=/opt/ottla/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ENV PYTHONDONTWRITEBYTECODE=1
# log.dirs is ./data by default, so the data is in the volume without a key that could get lost.
WORKDIR /var/lib/ottla
VOLUME /var/lib/ottla
EXPOSE 9092
USER 1000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["ottla-entrypoint", "ping"]
ENTRYPOINT ["ottla-entrypoint"]
CMD ["serve"]
