// A case that forgot to say what it expects.
int main() {
    return missing;
}
