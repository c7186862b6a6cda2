# dosimeter for a processor, without a GPU.
#
#   docker build --tag dosimeter .
#   docker run --rm --user "$(id -u)" --volume "$PWD:/data" dosimeter audit scores.npz --html audit.html
#
# /data is the folder that commands read from and write to. Other extras, e.g. for torch models and `dosimeter run`:
#
#   docker build --tag dosimeter --build-arg EXTRAS=report,onnx,sign,torch .
FROM python:3.11-slim

ARG EXTRAS=report,onnx,sign

WORKDIR /opt/dosimeter
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir ".[${EXTRAS}]"

# Any user may run it: what libraries want to keep goes to a place that everybody can write to.
ENV HOME=/tmp
USER nobody
WORKDIR /data
ENTRYPOINT ["dosimeter"]
CMD ["--help"]
