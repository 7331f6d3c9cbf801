"""Training in JAX on batches by their step: a linear model of data and labels, from batches/ of a mount.

    zrfs import features.npy features.zr
    zrfs import labels.npy labels.zr
    zrfs mount features.zr mnt -o labels=labels.zr,mode=shuffle,seed=7,batch_size=64
    python3 examples/jax_batches.py mnt          # 100 steps
    python3 examples/jax_batches.py mnt 100 50   # 50 steps, from step 100

Needs numpy and jax. Nothing in it knows of zrfs. The weights begin at zero each time; a training restores its own.
"""

import concurrent.futures
import sys

import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def train(weights, data, labels):
    def loss(weights):
        return jnp.mean((data @ weights - labels) ** 2)
    value, gradient = jax.value_and_grad(loss)(weights)
    return weights - 0.1 * gradient, value


def main(mount, start=0, steps=100):
    def read(step):
        data, labels = (np.load(f"{mount}/batches/{step}{kind}.npy") for kind in ("", ".label"))
        return jnp.asarray(data, dtype=jnp.float32).reshape(len(data), -1), jnp.asarray(labels, dtype=jnp.float32)

    weights = None
    # The next step is read while this one is trained on. Any step can be read at any time, by any thread.
    with concurrent.futures.ThreadPoolExecutor(1) as ahead:
        batch = ahead.submit(read, start)
        for step in range(start, start + steps):
            data, labels = batch.result()
            batch = ahead.submit(read, step + 1)
            if weights is None:
                weights = jnp.zeros(data.shape[1])
            weights, loss = train(weights, data, labels)
            if step in (start, start + steps - 1):
                print(f"step {step}: {data.shape} {data.dtype}, loss {loss:.6f}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
