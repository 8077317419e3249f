"""RNNs: a layer or cell is one operation of the plan, not its time steps one by one."""
