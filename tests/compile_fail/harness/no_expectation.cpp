// A case without an expectation.
int main() {
    return missing;
}
