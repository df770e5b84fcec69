// expect: SetByName
// Options are set by name.
#include "stage.hpp"

int main() {
    zero::AdamWOptions const options{0.1};
    return options.beta1 > 0.0 ? 0 : 1;
}
