"""Several simulated devices in every test process: what runs on one is not asked to notice."""

import jax

jax.config.update("jax_num_cpu_devices", 8)
