#include <vector>

import zero;

#include "train.hpp"

std::vector<float> train_imported(int ranks) {
    return train(ranks);
}
