"""A simulated Kunlun SDK. `python -m anychip_sim_kunlun build` compiles it into a tree."""
