-- The other tasks `far` of the flow `wanted.id`: those in the index of flows.
far.flow = wanted.id AND far.id >= far.flow
