"""python lose_a_node.py FOLDER: in.txt becomes out.txt on two nodes, one of which goes."""

import json
import sys
from collections.abc import Generator
from typing import Any

import corpus_files
from corpus_files import Slow, run

from mt.corpora.actors import Actors, ray
from mt.corpora.files import Block


def main(folder: str) -> None:
    from ray.cluster_utils import Cluster

    ray.cloudpickle.register_pickle_by_value(corpus_files)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    other = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False)
    nodes = [sum(node["Alive"] for node in ray.nodes())]
    actors = Actors(threads=1)

    def losing(worker: tuple[Any, ...], blocks: list[Block]) -> Generator[str, None, None]:
        for done, record in enumerate(actors(worker, blocks)):
            if done == 3:
                cluster.remove_node(other, allow_graceful=False)
            yield record

    run(Slow(), f"{folder}/in.txt", f"{folder}/out.txt", engine=losing, block_rows=2)
    nodes.append(sum(node["Alive"] for node in ray.nodes()))
    ray.shutdown()
    cluster.shutdown()
    print(json.dumps({"nodes": nodes}))


if __name__ == "__main__":
    main(sys.argv[1])
